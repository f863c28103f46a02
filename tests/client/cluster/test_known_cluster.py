"""The leaders that a client knows: the newest information wins, from responses and from hints."""

from moldau.client.cluster.known_cluster import KnownCluster
from moldau.client.cluster.metadata import Broker, ClusterMetadata, Partition, Topic
from moldau.net.request_channel import Address
from moldau.types import TopicPartition, Uuid

PARTITION = TopicPartition("orders", 0)
ONE = Uuid(bytes(15) + b"\x01")
TWO = Uuid(bytes(15) + b"\x02")


def broker(node_id: int) -> Broker:
    return Broker(node_id, Address("localhost", 9000 + node_id), None)


def metadata_with(leader: int, epoch: int, topic_id: Uuid = ONE) -> ClusterMetadata:
    row = Partition(0, leader, epoch, (1, 2), (1, 2), ())
    topic = Topic("orders", topic_id, is_internal=False, partitions={0: row})
    brokers = {1: broker(1), 2: broker(2)}
    return ClusterMetadata("cluster", 1, brokers, {"orders": topic}, frozenset(), {})


def test_an_older_answer_changes_nothing() -> None:
    known = KnownCluster()
    known.update(metadata_with(leader=1, epoch=5))
    known.update(metadata_with(leader=2, epoch=4))
    assert known.leader_of(PARTITION) == (1, 5)
    known.update(metadata_with(leader=2, epoch=6))
    assert known.leader_of(PARTITION) == (2, 6)


def test_stale_metadata_is_kept() -> None:
    known = KnownCluster()
    known.update(metadata_with(leader=1, epoch=5))
    known.mark_stale()
    assert not known.is_fresh("orders")
    known.update(metadata_with(leader=2, epoch=4))
    assert known.leader_of(PARTITION) == (1, 5)
    assert known.is_fresh("orders")


def test_a_recreated_topic_begins_with_new_epochs() -> None:
    known = KnownCluster()
    known.update(metadata_with(leader=1, epoch=5))
    known.update(metadata_with(leader=2, epoch=0, topic_id=TWO))
    assert known.leader_of(PARTITION) == (2, 0)
    assert known.name_of(TWO) == "orders"
    assert known.name_of(ONE) is None


def test_a_hint_counts_if_it_is_newer_and_says_where() -> None:
    known = KnownCluster()
    assert not known.update_leader(PARTITION, 2, 9)
    known.update(metadata_with(leader=1, epoch=5))
    assert not known.update_leader(PARTITION, 2, 5)
    assert not known.update_leader(PARTITION, 3, 6)
    assert known.update_leader(PARTITION, 3, 6, [broker(3)])
    assert known.leader_of(PARTITION) == (3, 6)
    assert known.brokers[3].address.port == 9003


def test_a_deleted_topic_is_forgotten() -> None:
    known = KnownCluster()
    known.update(metadata_with(leader=1, epoch=5))
    known.update(ClusterMetadata("cluster", 1, {}, {}, frozenset({"orders"}), {}))
    assert known.leader_of(PARTITION) is None
    assert known.name_of(ONE) is None
    assert known.brokers
