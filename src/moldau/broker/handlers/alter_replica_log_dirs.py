"""AlterReplicaLogDirs (versions 1 and 2): moves replicas of this node to other log directories. The
answer means that a move has begun; DescribeLogDirs shows how far it is.
"""

from pathlib import Path

from moldau.broker.context import RequestContext
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
) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            for index in topic.partitions:
                code = _move(ctx, TopicPartition(topic.name, index), directory.path)
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(ctx: RequestContext, name: TopicPartition, path: str) -> ErrorCode:
    replicas = ctx.broker.replicas
    try:
        replicas.move(name, Path(path))
    except KafkaError as error:
        # This request's older name for it is kept for clients that know no other.
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE
