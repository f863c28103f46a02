"""AlterReplicaLogDirs (versions 1 and 2): moves replicas of this node to other log directories. The
response means that a move has begun; DescribeLogDirs shows its progress.
"""

from collections.abc import Awaitable
from pathlib import Path

from moldau.broker.server.context import RequestContext
from moldau.net.slices import in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.types import TopicPartition


def handle_alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse | Awaitable[AlterReplicaLogDirsResponse]:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    requested = (
        (TopicPartition(topic.name, index), directory.path)
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    )

    def move(part: tuple[TopicPartition, str]) -> None:
        name, path = part
        result = results.setdefault(
            name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic, partitions=[])
        )
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(
                partition_index=name.partition, error_code=_move(ctx, name, path)
            )
        )

    return in_slices(
        move, requested, lambda _: AlterReplicaLogDirsResponse(results=list(results.values()))
    )


def _move(ctx: RequestContext, name: TopicPartition, path: str) -> ErrorCode:
    replicas = ctx.broker.replicas
    try:
        replicas.move(name, Path(path))
    except KafkaError as error:
        # Clients of this request may know only the older name of this error.
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE
