"""Gathers from several requests what `moldau topics describe` shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.client.admin.cluster import DescribedCluster
from moldau.client.admin.configs import (
    ConfigResource,
    ConfigSource,
    describe_configs,
)
from moldau.client.admin.log_dirs import Replica, describe_log_dirs
from moldau.client.admin.offsets import offset_ranges
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Partition, Topic
from moldau.client.errors import ClientError
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import NO_LEADER, TopicPartition, uuid_text


class TopicFilter(NamedTuple):
    under_replicated: bool = False
    unavailable: bool = False

    def keeps(self, partition: Partition) -> bool:
        if self.under_replicated and len(partition.isr) >= len(partition.replicas):
            return False
        return not self.unavailable or partition.leader == NO_LEADER

    @property
    def is_active(self) -> bool:
        return self.under_replicated or self.unavailable


class PartitionRow(NamedTuple):
    partition: Partition
    earliest: int | None
    latest: int | None
    replica: Replica | None
    """The leader's replica."""


class TopicDetails(NamedTuple):
    topic: Topic
    configs: Mapping[str, str | None]
    """Settings that differ from the broker's."""
    rows: Sequence[PartitionRow]


async def describe_topics(
    cluster: Cluster, names: Iterable[str] | None, topic_filter: TopicFilter
) -> list[TopicDetails]:
    if names:
        topics = list((await cluster.topics(names)).values())
    else:
        all_topics = (await cluster.metadata(None)).topics.values()
        topics = sorted(topic for topic in all_topics if not topic.is_internal)
    shown = {
        topic.name: list(filter(topic_filter.keeps, topic.partitions.values())) for topic in topics
    }
    led = [
        TopicPartition(name, partition.number)
        for name, partitions in shown.items()
        for partition in partitions
        if partition.leader != NO_LEADER
    ]
    ranges = await offset_ranges(cluster, led) if led else {}
    replicas = await _replicas(cluster, topics)
    described = []
    for topic in topics:
        if topic_filter.is_active and not shown[topic.name]:
            continue
        rows = []
        for partition in shown[topic.name]:
            name = TopicPartition(topic.name, partition.number)
            earliest, latest = ranges.get(name, (None, None))
            replica = replicas.get((partition.leader, name))
            rows.append(PartitionRow(partition, earliest, latest, replica))
        described.append(TopicDetails(topic, await _overrides(cluster, topic.name), rows))
    return described


async def _replicas(
    cluster: Cluster, topics: Iterable[Topic]
) -> dict[tuple[int, TopicPartition], Replica]:
    """By broker and partition; empty if the brokers do not describe their log directories."""
    partitions = (partition for topic in topics for partition in topic.partitions.values())
    leaders = {partition.leader for partition in partitions} - {NO_LEADER}
    try:
        directories = await describe_log_dirs(cluster, sorted(leaders))
    except (ClientError, KafkaError):
        return {}
    return {
        (directory.node_id, replica.partition): replica
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }


async def damaged_replicas(
    cluster: Cluster, described: DescribedCluster
) -> list[tuple[int, Replica]]:
    """Each with its broker; empty if the brokers do not describe their log directories."""
    running = [broker.node_id for broker in described.brokers if not broker.is_fenced]
    try:
        directories = await describe_log_dirs(cluster, running)
    except (ClientError, KafkaError):
        return []
    return [
        (directory.node_id, replica)
        for directory in directories
        for replica in directory.replicas
        if replica.damaged
    ]


async def _overrides(cluster: Cluster, name: str) -> dict[str, str | None]:
    try:
        entries = await describe_configs(cluster, ConfigResource(ConfigResourceType.TOPIC, name))
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return {}
        raise
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {entry.name: entry.value for entry in entries if entry.source is own}


def details_json(details: TopicDetails) -> dict[str, Any]:
    return {
        "name": details.topic.name,
        "topicId": uuid_text(details.topic.topic_id),
        "internal": details.topic.is_internal,
        "configs": dict(details.configs),
        "partitions": [
            {
                "partition": row.partition.number,
                "leader": row.partition.leader if row.partition.leader != NO_LEADER else None,
                "leaderEpoch": row.partition.leader_epoch,
                "replicas": list(row.partition.replicas),
                "isr": list(row.partition.isr),
                "offlineReplicas": list(row.partition.offline),
                "earliest": row.earliest,
                "latest": row.latest,
                "sizeBytes": None if row.replica is None else row.replica.size_bytes,
                "damagedOffsets": damage_json(row.replica),
                "offlineByDamage": row.replica is not None and row.replica.is_offline,
            }
            for row in details.rows
        ],
    }


def damage_json(replica: Replica | None) -> list[dict[str, int]]:
    """Offsets that the broker cannot read."""
    return [
        {"first": offsets.first, "last": offsets.last}
        for offsets in (replica.damaged if replica else ())
    ]


def damage_text(replica: Replica) -> str:
    """The damage and what to do about it, in one line."""
    ranges = ", ".join(f"{offsets.first} to {offsets.last}" for offsets in replica.damaged)
    if replica.is_offline:
        return f"offline: offsets {ranges} are lost; see the broker's log"
    after = [str(offsets.last + 1) for offsets in replica.damaged]
    if len(after) > 1:
        after = [", ".join(after[:-1]), f"or {after[-1]}"]
    return f"offsets {ranges} cannot be read; seek to {' '.join(after)} to skip them"
