"""Log directories of brokers: their replicas, and moving replicas between them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import check
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.log_dir_damage import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
)
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from moldau.types import TopicPartition


class DamagedRange(NamedTuple):
    """Offsets that a broker cannot read."""

    first: int
    last: int


class Replica(NamedTuple):
    """A replica of a partition in a log directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """The number of records by which the high watermark is ahead; for a future replica, by which
    the current replica is ahead.
    """
    is_future: bool
    """Whether it is being moved to this directory."""
    damaged: tuple[DamagedRange, ...] = ()
    """Unreadable offsets; only Moldau's brokers report them."""
    is_offline: bool = False
    """Whether damage keeps the whole replica offline."""


class LogDirectory(NamedTuple):
    """A log directory of a broker. Sizes are -1 if the broker does not report them."""

    node_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[Replica]


async def describe_log_dirs(cluster: Cluster, node_ids: Iterable[int]) -> list[LogDirectory]:
    found = []
    for node_id in node_ids:
        request = DescribeLogDirsRequest(topics=None)
        answer = await cluster.send(node_id, request, DescribeLogDirsResponse)
        check(answer.error_code)
        found += [_directory(node_id, row) for row in answer.results]
    return found


def _directory(node_id: int, row: DescribeLogDirsResult) -> LogDirectory:
    replicas = [
        Replica(
            TopicPartition(topic.name, partition.partition_index),
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
            *_damage(partition),
        )
        for topic in row.topics
        for partition in topic.partitions
    ]
    return LogDirectory(
        node_id,
        row.log_dir,
        error_code(row.error_code),
        row.total_bytes,
        row.usable_bytes,
        sorted(replicas),
    )


def _damage(row: object) -> tuple[tuple[DamagedRange, ...], bool]:
    if not isinstance(row, DescribeLogDirsPartition):
        return (), False
    ends = iter(row.damaged_offsets)
    ranges = tuple(DamagedRange(first, end - 1) for first, end in zip(ends, ends, strict=False))
    return ranges, row.is_offline


async def alter_replica_log_dirs(
    cluster: Cluster, node_id: int, moves: Mapping[TopicPartition, str]
) -> dict[TopicPartition, KafkaError | None]:
    """Moves the replica of each partition to a directory of that broker."""
    directories: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
    for (name, number), path in moves.items():
        topics = directories.setdefault(path, {})
        topics.setdefault(name, AlterReplicaLogDirTopic(name=name)).partitions.append(number)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=list(topics.values()))
            for path, topics in directories.items()
        ]
    )
    answer = await cluster.send(node_id, request, AlterReplicaLogDirsResponse)
    return {
        TopicPartition(topic.topic_name, row.partition_index): (
            KafkaError(error_code(row.error_code)) if row.error_code else None
        )
        for topic in answer.results
        for row in topic.partitions
    }
