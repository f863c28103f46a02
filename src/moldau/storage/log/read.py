"""Reading from a log: whole batches from an offset on, and offsets by time. Batches are located by
indexes and headers alone, since a fetch that waits for more data needs only their size.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import RecordBatch
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX
from moldau.storage.disk.cached_reads import CachedReads
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.segment.walk import BatchSpan
from moldau.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset

if TYPE_CHECKING:
    from moldau.storage.log.log import Log


# Searching a batch with more records takes milliseconds.
_HEAVY_RECORDS = 20_000
_HEAVY_COMPRESSED_BYTES = 64 << 10


class Isolation(Enum):
    """The offset up to which a reader may see records."""

    LOG_END = "log end"
    """Followers."""
    HIGH_WATERMARK = "high watermark"
    """read_uncommitted."""
    COMMITTED = "last stable offset"
    """read_committed: with the list of aborted transactions."""


class ReadResult(NamedTuple):
    records: memoryview
    """Whole batches; empty if none is visible yet."""
    next_offset: Offset
    """The offset of the first batch returned; nothing before it was skipped."""
    aborted: list[AbortedTransaction] | None = None
    first_batch_bytes: int = 0
    """The size of the batch that did not fit, if `records` is empty because of that."""


class FoundBatches(NamedTuple):
    """The position of batches that a reader may see. Valid until the log is used otherwise."""

    offset: Offset
    next_offset: Offset
    aborted: list[AbortedTransaction] | None
    segment_index: int = 0
    start: int = 0
    end: int = 0
    first_batch_bytes: int = 0
    """The size of the first batch, if it exceeded the limit."""
    is_all: bool = True
    """The reader can see no more now: neither beyond the size limit nor in a later segment.
    """

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class FoundOffset(NamedTuple):
    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


_NOTHING = memoryview(b"")


def find(
    log: "Log",
    offset: Offset,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    reads: CachedReads | None = None,
) -> FoundBatches:
    """The batches that `take` then reads. Without `reads` both may wait for the disk."""
    if max_bytes < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"max_bytes is {max_bytes}")
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.topic_partition} has offsets {log.log_start_offset} to {log.log_end_offset}, "
            f"{offset} was requested",
        )
    bound = _bound(log, isolation)
    aborted: list[AbortedTransaction] | None = [] if isolation is Isolation.COMMITTED else None
    located = _find_batch(log, offset, bound, reads) if offset < bound else None
    if located is None:
        return FoundBatches(offset, offset, aborted)
    segment_index, segment, first = located
    limit = size = segment.size
    if bound < log.segments.end_of(segment_index, log.log_end_offset):
        limit = _bound_position(segment, first, bound, reads)
    if segment.damaged:
        limit = min(limit, _sound_end(log, segment, first))
    first_end = first.position + first.size
    if first_end > limit:
        return FoundBatches(offset, offset, aborted, first_batch_bytes=first.size)
    if first.size > max_bytes and not min_one_batch:
        return FoundBatches(offset, offset, aborted, first_batch_bytes=first.size, is_all=False)
    end, next_offset = first_end, first.last_offset + 1
    if first.size < max_bytes and first_end < limit:
        reach = min(first.position + max_bytes, limit)
        if reach == size:
            end, next_offset = reach, log.segments.end_of(segment_index, log.log_end_offset)
        else:
            end, next_offset = segment.boundary(reach, first.position, reads)
    return FoundBatches(
        offset,
        Offset(next_offset),
        aborted,
        segment_index,
        first.position,
        end,
        0,
        next_offset >= bound,
    )


def take(log: "Log", found: FoundBatches, reads: CachedReads | None = None) -> ReadResult:
    """Reads the batches that `find` has located."""
    if found.start == found.end:
        return ReadResult(_NOTHING, found.offset, found.aborted, found.first_batch_bytes)
    aborted = found.aborted
    if aborted is not None:
        aborted = aborted_transactions(
            log, found.segment_index, found.offset, found.next_offset, reads
        )
    records = log.segments[found.segment_index].slice(found.start, found.end, reads)
    return ReadResult(records, found.next_offset, aborted)


def _bound(log: "Log", isolation: Isolation) -> Offset:
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset


def _find_batch(
    log: "Log", offset: Offset, bound: Offset, reads: CachedReads | None
) -> tuple[int, Segment, BatchSpan] | None:
    """The first batch from `offset` on, if it begins before `bound`. Compaction may have emptied
    the rest of a segment: then the search moves to the next one.
    """
    segments = log.segments
    for segment_index in range(max(segments.floor_index(offset), 0), len(segments)):
        segment = segments[segment_index]
        span = segment.locate(offset, reads)
        if span is not None:
            return (segment_index, segment, span) if span.base_offset < bound else None
    return None


def _bound_position(
    segment: Segment, first: BatchSpan, bound: Offset, reads: CachedReads | None
) -> int:
    """The position in the segment that a reader limited to offsets before `bound` may reach."""
    if first.last_offset < bound:
        span = segment.locate(bound, reads)
        return segment.size if span is None else span.position
    return first.position


def _sound_end(log: "Log", segment: Segment, first: BatchSpan) -> int:
    """Raises CORRUPT_MESSAGE if the batch is damaged: a reader must skip it explicitly."""
    end = segment.sound_end(first.position)
    if end == first.position:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{log.topic_partition}: offsets {first.base_offset} to {first.last_offset} are "
            f"damaged in {segment.path().name}; the next one is {first.last_offset + 1}",
        )
    return end


def aborted_transactions(
    log: "Log",
    segment_index: int,
    offset: Offset,
    upper_bound_offset: Offset,
    reads: CachedReads | None = None,
) -> list[AbortedTransaction]:
    """The transactions that overlap [offset, upper_bound_offset). A marker may be in a later
    segment.
    """
    found: list[AbortedTransaction] = []
    for later in range(segment_index, len(log.segments)):
        segment = log.segments[later]
        index = segment.transaction_index
        if reads is not None:
            reads.need(segment, index)
        some, is_complete = index.collect(offset, upper_bound_offset)
        found += some
        if is_complete:
            break
    return found


# By time


def offset_for_timestamp(log: "Log", timestamp_ms: int) -> FoundOffset | None:
    if timestamp_ms == ListOffsetsTimestamp.LATEST:
        return FoundOffset(NO_TIMESTAMP, log.log_end_offset, log.epochs.latest_epoch)
    if timestamp_ms in {ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL}:
        earliest = log.epochs.earliest_entry
        if earliest is None or earliest.start_offset > log.log_start_offset:
            return FoundOffset(NO_TIMESTAMP, log.log_start_offset, None)
        return FoundOffset(NO_TIMESTAMP, log.log_start_offset, earliest.epoch)
    if timestamp_ms in {
        ListOffsetsTimestamp.LATEST_TIERED,
        ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD,
    }:
        # There is no tiered storage.
        return FoundOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)
    start_offset = log.log_start_offset
    while (batch := batch_of_time(log, timestamp_ms, start_offset)) is not None:
        found = batch.find()
        if found is not None or timestamp_ms == ListOffsetsTimestamp.MAX_TIMESTAMP:
            return found
        start_offset = Offset(batch.last_offset + 1)
    return None


class BatchOfTime(NamedTuple):
    """The batch that should contain the record. Searching a large one takes long: `find` may run in
    any thread, on a copy of the batch (`detached`).
    """

    batch: RecordBatch
    timestamp_min: int
    offset_min: int
    last_offset: Offset
    leader_epoch: LeaderEpoch | None

    @property
    def is_heavy(self) -> bool:
        if self.batch.is_compressed:
            return self.batch.size_in_bytes > _HEAVY_COMPRESSED_BYTES
        return self.batch.record_count > _HEAVY_RECORDS

    def detached(self) -> "BatchOfTime":
        return self._replace(batch=RecordBatch(bytes(self.batch.view)))

    def find(self) -> FoundOffset | None:
        found = self.batch.first_record_at(
            self.timestamp_min, self.offset_min, STORED_OUTPUT_BYTES_MAX
        )
        if found is None:
            return None
        offset, timestamp_ms = found
        return FoundOffset(timestamp_ms, Offset(offset), self.leader_epoch)


def batch_of_time(
    log: "Log", timestamp_ms: int, start_offset: Offset, reads: CachedReads | None = None
) -> BatchOfTime | None:
    """The first batch from an offset on with a record at or after a time; for MAX_TIMESTAMP the
    batch with the largest timestamp. If the batch does not contain such a record, search again
    after it. Without `reads` it may wait for the disk.
    """
    if timestamp_ms == ListOffsetsTimestamp.MAX_TIMESTAMP:
        return _latest_batch(log, reads)
    for segment in log.segments:
        segment.load_max_timestamp(reads)
        if segment.largest_timestamp_ms() >= timestamp_ms:
            for span in segment.batches_from_time(timestamp_ms, start_offset, reads):
                if span.max_timestamp_ms >= timestamp_ms and span.last_offset >= start_offset:
                    return _of_span(segment, span, (timestamp_ms, start_offset), reads)
    return None


def _latest_batch(log: "Log", reads: CachedReads | None) -> BatchOfTime | None:
    for each in log.segments:
        each.load_max_timestamp(reads)
    segment = max(log.segments, key=lambda candidate: candidate.max_timestamp[0])
    max_ms, last_offset = segment.max_timestamp
    span = segment.locate(Offset(last_offset), reads) if max_ms >= 0 else None
    return None if span is None else _of_span(segment, span, (max_ms, span.base_offset), reads)


def _of_span(
    segment: Segment, span: BatchSpan, least: tuple[int, int], reads: CachedReads | None
) -> BatchOfTime:
    """`least`: the time and the offset of the record to find."""
    batch = RecordBatch(segment.slice(span.position, span.position + span.size, reads))
    epoch = span.leader_epoch if span.leader_epoch >= 0 else None
    return BatchOfTime(batch, *least, span.last_offset, epoch)
