"""The metadata that a client has of its cluster. Newer metadata wins: a response with an older
leader epoch than the known one does not change a partition (KIP-320).
"""

from collections.abc import Iterable

from moldau.client.cluster.metadata import Broker, ClusterMetadata, Partition, Topic
from moldau.types import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition, Uuid


class KnownCluster:
    """Brokers, topics and leaders, as the newest responses report them."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}
        self.cluster_id: str | None = None
        self.controller_id: int = NO_LEADER
        self._fresh: set[str] = set()
        self._names: dict[Uuid, str] = {}

    def update(self, found: ClusterMetadata) -> None:
        """Updates brokers and topics from a Metadata response."""
        if found.brokers:
            self.brokers = dict(found.brokers)
            self.cluster_id = found.cluster_id
            self.controller_id = found.controller_id
        for name in found.missing:
            self.forget_topic(name)
        for name, topic in found.topics.items():
            self._update_topic(name, topic)

    def _update_topic(self, name: str, topic: Topic) -> None:
        before = self.topics.get(name)
        if before is not None and before.topic_id == topic.topic_id:
            newest = {
                number: _newer(before.partitions.get(number), partition)
                for number, partition in topic.partitions.items()
            }
            topic = topic._replace(partitions=newest)
        elif before is not None:
            self._names.pop(before.topic_id, None)
        self.topics[name] = topic
        self._fresh.add(name)
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = name

    def update_leader(
        self, partition: TopicPartition, leader: int, epoch: int, endpoints: Iterable[Broker] = ()
    ) -> bool:
        """Updates a leader from a hint that came with an error (KIP-951). Returns whether the
        leader was updated.
        """
        topic = self.topics.get(partition.topic)
        row = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or row is None or leader == NO_LEADER or epoch <= row.leader_epoch:
            return False
        for broker in endpoints:
            self.brokers[broker.node_id] = broker
        if leader not in self.brokers:
            return False
        rows = topic.partitions | {
            partition.partition: row._replace(leader=leader, leader_epoch=epoch)
        }
        self.topics[partition.topic] = topic._replace(partitions=rows)
        return True

    def update_address(self, broker: Broker) -> None:
        """Updates the address of a broker from a response that does not contain its rack."""
        before = self.brokers.get(broker.node_id)
        rack = None if before is None else before.rack
        self.brokers[broker.node_id] = broker._replace(rack=rack)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The leader of a partition and its epoch; None if no leader is known."""
        topic = self.topics.get(partition.topic)
        row = None if topic is None else topic.partitions.get(partition.partition)
        if row is None or row.leader == NO_LEADER:
            return None
        return row.leader, row.leader_epoch

    def is_fresh(self, name: str) -> bool:
        """Whether a topic is known and not stale."""
        return name in self._fresh

    def mark_stale(self, name: str | None = None) -> None:
        """Marks a topic, or all of them, as stale: it is requested again before its next use. The
        metadata is kept, so that an even older response is recognized.
        """
        if name is None:
            self._fresh.clear()
        else:
            self._fresh.discard(name)

    def forget_topic(self, name: str) -> None:
        self._fresh.discard(name)
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._names.pop(topic.topic_id, None)

    def forget_all(self) -> None:
        """Forgets everything, before a new start that may lead to another cluster."""
        self.brokers.clear()
        self.controller_id = NO_LEADER
        self.topics.clear()
        self._fresh.clear()
        self._names.clear()


def _newer(before: Partition | None, now: Partition) -> Partition:
    if before is None or now.leader_epoch == NO_EPOCH:
        return now
    return before if now.leader_epoch < before.leader_epoch else now
