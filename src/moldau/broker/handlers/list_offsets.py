"""ListOffsets (versions 1 to 11): offsets by time, and the special ones."""

from moldau.broker.context import RequestContext
from moldau.broker.partition import Partition
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from moldau.storage.log_read import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FoundOffset,
)
from moldau.types import NO_TIMESTAMP

LEADER_EPOCH_SINCE_VERSION = 4
OFFSET_NOT_AVAILABLE_SINCE_VERSION = 5
READ_COMMITTED = 1
_ISOLATION_LEVELS = {0, READ_COMMITTED}

# The version of the request that brought each special value.
_SPECIAL_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_ALWAYS_VISIBLE = {EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP}


def handle_list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    doubled = _doubled(request)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(ctx, request, topic, asked, is_doubled=_key(topic, asked) in doubled)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _key(topic: ListOffsetsTopic, asked: ListOffsetsPartition) -> tuple[str, int]:
    return topic.name, asked.partition_index


def _doubled(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    doubled: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            (doubled if _key(topic, asked) in seen else seen).add(_key(topic, asked))
    return doubled


def _answer(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    topic: ListOffsetsTopic,
    asked: ListOffsetsPartition,
    *,
    is_doubled: bool,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if is_doubled or request.isolation_level not in _ISOLATION_LEVELS:
        answer.error_code = ErrorCode.INVALID_REQUEST
        return answer
    if asked.timestamp < 0 and ctx.version < _SPECIAL_SINCE.get(asked.timestamp, 1 << 15):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    try:
        partition = ctx.broker.replicas.lookup(
            topic.name, asked.partition_index, asked.current_leader_epoch
        )
        found = _find(partition, asked.timestamp, _visible_end(ctx, request, partition))
    except KafkaError as error:
        answer.error_code = _known_code(error.code, ctx.version)
        return answer
    if found is not None:
        answer.timestamp = found.timestamp_ms
        answer.offset = found.offset
        if found.leader_epoch is not None and ctx.version >= LEADER_EPOCH_SINCE_VERSION:
            answer.leader_epoch = found.leader_epoch
    return answer


def _visible_end(ctx: RequestContext, request: ListOffsetsRequest, partition: Partition) -> int:
    """Where the log ends for the asker. Only another broker sees all of it."""
    log = partition.log
    if request.replica_id >= 0 and ctx.peer.is_privileged_listener:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _find(partition: Partition, timestamp_ms: int, visible_end: int) -> FoundOffset | None:
    leader = partition.leading()
    log = partition.log
    # A new leader that does not know yet how much was committed might take back what the last one
    # said about the end (KIP-207).
    not_available = KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    is_lagging = leader.is_lagging and visible_end < log.log_end_offset
    if timestamp_ms == LATEST_TIMESTAMP:
        if is_lagging:
            raise not_available
        return FoundOffset(NO_TIMESTAMP, visible_end, leader.leader_epoch)
    found = log.offset_for_timestamp(timestamp_ms)
    if timestamp_ms in _ALWAYS_VISIBLE:
        return found
    if found is not None and found.offset < visible_end:
        return found
    if is_lagging:
        raise not_available
    return None


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE_VERSION:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
