"""A consumer in a cluster of several brokers: it reads from the replica in its rack, and detects
that a new leader lacks records it has read.
"""

from typing import Any

import pytest
from client.consumed import fresh_name, poll_until, produce, read, values
from interop.peers.live_cluster import LiveCluster
from support.waiting import wait_for

from moldau import Consumer
from moldau.client.consumer.errors import LogTruncationError
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "retry_backoff_ms": 50,
    "reconnect_backoff_ms": 50,
    "metadata_max_age_ms": 1000,
}


@pytest.fixture
def name() -> str:
    return fresh_name("cluster")


def consumer_of(cluster: LiveCluster, **settings: Any) -> Consumer:
    return Consumer(cluster.bootstrap, group_id=fresh_name("group"), **(SETTINGS | settings))


def read_from(consumer: Consumer, place: TopicPartition) -> int:
    return consumer._engine.state_of(place).preferred_replica


def test_it_reads_from_the_replica_in_its_rack(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, leaders=[1])
    place = TopicPartition(name, 0)
    written = [b"%d" % number for number in range(1000)]
    produce(apache_cluster.bootstrap, name, written[:500], 0)
    with consumer_of(apache_cluster, client_rack=apache_cluster.rack(3)) as consumer:
        consumer.assign([place])
        found = values(read(consumer, 500))
        assert read_from(consumer, place) == 3
        produce(apache_cluster.bootstrap, name, written[500:800], 0)
        found += values(read(consumer, 300))
        assert read_from(consumer, place) == 3
        # The replica stops and the leader takes over; then the replica serves again.
        apache_cluster.kill(3)
        produce(apache_cluster.bootstrap, name, written[800:900], 0)
        found += values(read(consumer, 100))
        apache_cluster.heal()
        produce(apache_cluster.bootstrap, name, written[900:], 0)
        found += values(read(consumer, 100))
        assert found == written
        poll_until(lambda: read_from(consumer, place) == 3, consumer)


def test_without_a_rack_it_reads_from_the_leader(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, leaders=[2])
    place = TopicPartition(name, 0)
    produce(apache_cluster.bootstrap, name, [b"a"], 0)
    with consumer_of(apache_cluster) as consumer:
        consumer.assign([place])
        assert values(read(consumer, 1)) == [b"a"]
        assert read_from(consumer, place) == -1


def lose_records(cluster: LiveCluster, name: str, consumers: list[Consumer]) -> None:
    """Broker 1 alone gets the last 50 of 100 records; all are read; then broker 2 leads without
    them.
    """
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    cluster.create_topic(name, leaders=[1], config=config)
    produce(cluster.bootstrap, name, [b"%d" % number for number in range(50)], 0)
    for node_id in (2, 3):
        cluster.kill(node_id)
    wait_for(lambda: cluster.partitions(name)[0].isr_nodes == [1], "broker 1 to be alone", 60)
    produce(cluster.address(1), name, [b"%d" % number for number in range(50, 100)], 0)
    for consumer in consumers:
        consumer.assign([(name, 0)])
        consumer.seek((name, 0), 0)
        assert len(read(consumer, 100)) == 100
    cluster.kill(1)
    cluster._launch(2)
    cluster._launch(3)

    def is_led() -> bool:
        rows = cluster.partitions(name)
        return 0 in rows and rows[0].leader_id in {2, 3}

    wait_for(is_led, "a leader without the records", 120)


def test_records_that_a_new_leader_lacks_are_detected(
    apache_cluster: LiveCluster, name: str
) -> None:
    with (
        consumer_of(apache_cluster, auto_offset_reset="none") as strict,
        consumer_of(apache_cluster) as lenient,
    ):
        lose_records(apache_cluster, name, [strict, lenient])
        with pytest.raises(LogTruncationError, match=r"read up to 100, its new leader ends at 50"):
            poll_until(lambda: False, strict, patience_s=120)
        produce(apache_cluster.bootstrap, name, [b"new"], 0)
        # A consumer with a reset policy continues where the logs diverge.
        (record,) = read(lenient, 1)
        assert (record.offset, record.value) == (50, b"new")
        strict.seek((name, 0), 50)
        assert values(read(strict, 1)) == [b"new"]
