"""What `moldau topics describe` shows, gathered from several requests."""

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
    """The leader's copy."""


class TopicDetails(NamedTuple):
    topic: Topic
    configs: Mapping[str, str | None]
    """What differs from the broker's."""
    rows: Sequence[PartitionRow]


async def describe_topics(
    cluster: Cluster, names: Iterable[str] | None, wanted: TopicFilter
) -> list[TopicDetails]:
    if names:
        topics = list((await cluster.topics(names)).values())
    else:
        everything = (await cluster.metadata(None)).topics.values()
        topics = sorted(topic for topic in everything if not topic.is_internal)
    shown = {
        topic.name: [one for one in topic.partitions.values() if wanted.keeps(one)]
        for topic in topics
    }
    led = [
        TopicPartition(name, one.number)
        for name, partitions in shown.items()
        for one in partitions
        if one.leader != NO_LEADER
    ]
    ranges = await offset_ranges(cluster, led) if led else {}
    replicas = await _replicas(cluster, topics)
    found = []
    for topic in topics:
        if wanted.is_active and not shown[topic.name]:
            continue
        rows = []
        for one in shown[topic.name]:
            name = TopicPartition(topic.name, one.number)
            earliest, latest = ranges.get(name, (None, None))
            rows.append(PartitionRow(one, earliest, latest, replicas.get((one.leader, name))))
        found.append(TopicDetails(topic, await _overrides(cluster, topic.name), rows))
    return found


async def _replicas(
    cluster: Cluster, topics: Iterable[Topic]
) -> dict[tuple[int, TopicPartition], Replica]:
    """By broker; none of a broker that will not tell."""
    leaders = {one.leader for topic in topics for one in topic.partitions.values()} - {NO_LEADER}
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


async def damaged_replicas(cluster: Cluster, found: DescribedCluster) -> list[tuple[int, Replica]]:
    """With the broker that holds each; none of a broker that will not tell."""
    running = [broker.node_id for broker in found.brokers if not broker.is_fenced]
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
        {"first": each.first, "last": each.last} for each in (replica.damaged if replica else ())
    ]


def damage_text(replica: Replica) -> str:
    """What is damaged, and what to do, in one line."""
    ranges = ", ".join(f"{each.first} to {each.last}" for each in replica.damaged)
    if replica.is_offline:
        return f"offline: offsets {ranges} are lost; see the broker's log"
    after = [str(each.last + 1) for each in replica.damaged]
    if len(after) > 1:
        after = [", ".join(after[:-1]), f"or {after[-1]}"]
    return f"offsets {ranges} cannot be read; seek to {' '.join(after)} to pass them"
