"""DescribeLogDirs (versions 1 to 5): the log directories of this node and their contents."""

from collections.abc import Container

from moldau.broker.server.context import RequestContext
from moldau.net.slices import Slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_dir_damage import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.storage.directory.logs import Logs
from moldau.storage.log.log import Log
from moldau.types import TopicPartition

UNKNOWN_LAG = -1


async def handle_describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    selected = await ctx.work(_selected, request)
    store = ctx.broker.replicas.store
    results = [await _describe(ctx, logs, selected) for logs in list(store.logs)]
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
        for path in store.unavailable
    ]
    return DescribeLogDirsResponse(results=[*results])


def _selected(request: DescribeLogDirsRequest) -> Container[TopicPartition] | None:
    """None selects all partitions."""
    if request.topics is None:
        return None
    return {
        TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
    }


async def _describe(
    ctx: RequestContext, logs: Logs, selected: Container[TopicPartition] | None
) -> DescribeLogDirsResult:
    path = logs.directory.path
    try:
        logs.directory.check_online()
        with logs.directory.offline_on_error:
            filesystem = logs.directory.filesystem
            total_bytes, free_bytes = filesystem.total_bytes(path), filesystem.free_bytes(path)
    except KafkaError as error:
        return DescribeLogDirsResult(error_code=error.code, log_dir=str(path))
    topics: dict[str, DescribeLogDirsTopic] = {}
    slices = Slices()
    for log in [*logs.by_partition.values(), *logs.futures.values()]:
        name = log.topic_partition
        if selected is None or name in selected:
            topic = topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic))
            topic.partitions.append(_sizes(ctx, log, is_future=log is logs.futures.get(name)))
        if slices.is_over:
            await slices.next()
    return DescribeLogDirsResult(
        log_dir=str(path),
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=free_bytes,
        is_cordoned=ctx.broker.replicas.store.is_cordoned(path),
    )


def _sizes(ctx: RequestContext, log: Log, *, is_future: bool) -> DescribeLogDirsPartition:
    name = log.topic_partition
    partition = ctx.broker.replicas.get(*name)
    lag = UNKNOWN_LAG
    if partition is not None and partition.has_log:
        current = partition.log
        reached = current.log_end_offset if is_future else current.high_watermark
        lag = max(reached - log.log_end_offset, 0)
    described = DescribeLogDirsPartition(
        partition_index=name.partition,
        partition_size=log.segments.size_in_bytes,
        offset_lag=lag,
        is_future_key=is_future,
    )
    if log.damage is not None:
        described.damaged_offsets = [log.damage.first_offset, log.damage.promised_end]
        described.is_offline = True
    for _, damaged in log.damaged:
        described.damaged_offsets += [damaged.first_offset, damaged.next_offset]
    return described
