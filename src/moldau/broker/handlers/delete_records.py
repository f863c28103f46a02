"""DeleteRecords (versions 0 to 2): moves the start of logs. An acknowledged deletion survives a
crash.

The response does not wait for followers, which delete at their next fetch.
"""

from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import INTERNAL_TOPICS
from moldau.net.slices import in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.storage.log.log import Log
from moldau.types import FIRST_OFFSET, Offset, TopicPartition

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def handle_delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    targets: dict[Log, Offset] = {}
    refused: dict[TopicPartition, KafkaError] = {}

    def check(part: tuple[str, DeleteRecordsPartition]) -> None:
        topic, requested = part
        try:
            log, offset = _target(ctx, topic, requested)
            # The highest offset counts if a partition is named twice.
            targets[log] = max(offset, targets.get(log, FIRST_OFFSET))
        except KafkaError as error:
            # Without its traceback, which refers back to this dictionary.
            refused[TopicPartition(topic, requested.partition_index)] = error.with_traceback(None)

    checking = in_slices(
        check,
        ((topic.name, requested) for topic in request.topics for requested in topic.partitions),
        lambda _: None,
    )
    if checking is not None:
        await checking
    return await _delete(ctx, request, targets, refused)


async def _delete(
    ctx: RequestContext,
    request: DeleteRecordsRequest,
    targets: dict[Log, Offset],
    refused: dict[TopicPartition, KafkaError],
) -> DeleteRecordsResponse:
    results: dict[TopicPartition, Offset | KafkaError] = {**refused}
    for log, outcome in (await ctx.broker.replicas.delete_records(targets)).items():
        results[log.topic_partition] = outcome
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(index, results[TopicPartition(topic.name, index)])
                    for index in dict.fromkeys(each.partition_index for each in topic.partitions)
                ],
            )
            for topic in request.topics
        ]
    )


def _target(
    ctx: RequestContext, topic: str, requested: DeleteRecordsPartition
) -> tuple[Log, Offset]:
    log = ctx.broker.replicas.lookup(topic, requested.partition_index).log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"clients cannot delete records of {topic}",
        )
    if log.config.compacts and not log.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, not deleted")
    offset = (
        log.high_watermark if requested.offset == TO_HIGH_WATERMARK else Offset(requested.offset)
    )
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
    return log, offset


def _result(index: int, outcome: Offset | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)
