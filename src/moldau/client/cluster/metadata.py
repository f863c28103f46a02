"""Metadata of a cluster: brokers, topics, partitions and their leaders."""

from typing import NamedTuple

from moldau.client.errors import ClientError, check
from moldau.net.request_channel import Address
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError, error_code
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.types import NO_LEADER, TopicPartition, Uuid

# Errors of a partition without a leader, or whose leader is unreachable; all other fields of its
# row are valid.
_WITHOUT_LEADER = frozenset(
    {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE}
)
_WITHOUT_LEADER |= {ErrorCode.LISTENER_NOT_FOUND}


class Broker(NamedTuple):
    """A broker and its address."""

    node_id: int
    address: Address
    rack: str | None


class Partition(NamedTuple):
    """A partition with its leader and replicas, all by the ids of their brokers."""

    number: int
    leader: int
    """-1 if there is none now."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """The in-sync replicas."""
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] = ()
    """Replicas that have all acknowledged records though they are not in sync. Only
    `describe_topics` reports these and `last_known_leaders`, from brokers since 4.0.
    """
    last_known_leaders: tuple[int, ...] = ()


class Topic(NamedTuple):
    """A topic and its partitions, by number."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: dict[int, Partition]

    def partition(self, index: int) -> Partition:
        """Returns one partition.

        Args:
            index: Number of the partition.

        Raises:
            ClientError: The topic has no such partition.
        """
        if index not in self.partitions:
            count = len(self.partitions)
            counted = "1 partition" if count == 1 else f"{count} partitions"
            numbers = f" (0 to {count - 1})" if count > 1 else ""
            raise ClientError(
                f"topic '{self.name}' has no partition {index}; it has {counted}{numbers}"
            )
        return self.partitions[index]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """All partitions, in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.partitions)]


class ClusterMetadata(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]
    missing: frozenset[str]
    """Requested topics that do not exist."""
    failures: dict[str, MoldauError]
    """The errors of topics that exist but may not be described, or are not ready."""


def read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    check(answer.error_code)
    found: dict[str, Topic] = {}
    missing = set()
    failures: dict[str, MoldauError] = {}
    for topic in answer.topics:
        name = topic.name or ""
        match topic.error_code:
            case ErrorCode.NONE:
                try:
                    found[name] = _topic(topic)
                except KafkaError as error:
                    failures[name] = error
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                missing.add(name)
            case ErrorCode.INVALID_TOPIC_EXCEPTION:
                failures[name] = ClientError(f"'{name}' cannot be the name of a topic")
            case number:
                failures[name] = KafkaError(error_code(number), f"topic '{name}'")
    brokers = {broker.node_id: _broker(broker) for broker in answer.brokers}
    return ClusterMetadata(
        answer.cluster_id, answer.controller_id, brokers, found, frozenset(missing), failures
    )


def _broker(broker: MetadataResponseBroker) -> Broker:
    return Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)


def _topic(topic: MetadataResponseTopic) -> Topic:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return Topic(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        {partition.partition_index: _partition(partition) for partition in partitions},
    )


def _partition(partition: MetadataResponsePartition) -> Partition:
    if partition.error_code not in _WITHOUT_LEADER:
        raise KafkaError(error_code(partition.error_code), f"partition {partition.partition_index}")
    has_leader = partition.error_code != ErrorCode.LEADER_NOT_AVAILABLE
    return Partition(
        partition.partition_index,
        partition.leader_id if has_leader else NO_LEADER,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
    )
