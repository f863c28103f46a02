"""Appending to a log, always in this order: check everything, roll if needed, write, and only then
update offsets, indexes and producer state. A refused append changes nothing; a write that fails for
lack of space is truncated and refused; any other failed write takes the directory offline.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import recompress
from moldau.protocol.records.batch_validation import (
    ValidationRules,
    sole_batch,
    timestamp_range,
    validate_batch,
)
from moldau.protocol.records.batches import (
    CONTROL_FLAG,
    RecordBatch,
    TimestampType,
    iterate_batches,
    patch_base_offset,
    patch_leader_epoch,
    patch_max_timestamp,
)
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.record_loops import INCOMPLETE, StampLimits, scan_batches, stamp_batch
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_ID,
    SIZE,
    ScannedBatch,
)
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.disk.failures import WRITES_REFUSED, refusal
from moldau.storage.producers.entry import BatchMetadata, ProducerEntry
from moldau.storage.producers.replay import complete, data_batch, end_marker
from moldau.storage.producers.state import AppendOrigin, ProducerAppend
from moldau.storage.producers.verification import Verification
from moldau.storage.segment.segment import Segment
from moldau.types import INT32_MAX, NO_EPOCH, NO_TIMESTAMP, Buffer, LeaderEpoch, Offset

if TYPE_CHECKING:
    from moldau.config.log import LogConfig
    from moldau.storage.log.log import Log


class AppendContext(NamedTuple):
    leader_epoch: LeaderEpoch
    now_ms: int
    origin: AppendOrigin
    transaction_version: int
    output_bytes_max: int | None = None
    """How far a compressed batch may expand; None is the codec's own limit."""
    verification: Verification | None = None


class PreparedBatch(NamedTuple):
    """A client's batch after validation and recompression: the slow part of an append."""

    batch: RecordBatch
    max_timestamp_ms: int


class VerifiedBatch(NamedTuple):
    """A batch whose transaction the coordinator has confirmed for this partition."""

    records: Buffer | PreparedBatch
    verification: Verification


class AppendResult(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    append_time_ms: int
    """Our clock if the topic uses append time, else -1."""
    log_start_offset: Offset
    is_duplicate: bool = False
    """The batch was a retry and nothing was written: the offsets are those of the first append."""


class UnexpectedOffsetError(KafkaError):
    """A follower received records that it already has."""

    def __init__(self, detail: str, first_offset: Offset, last_offset: Offset) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
        self.first_offset = first_offset
        self.last_offset = last_offset


# As the leader


class LeaderRules(NamedTuple):
    """The rules that a leader checks batches against, built once for all appends of a
    millisecond.
    """

    config: "LogConfig"
    now_ms: int
    origin: AppendOrigin
    validation: ValidationRules
    codec: Compression | None
    """None keeps the producer's codec."""
    stamp_limits: StampLimits | None
    """The limits for `stamp_batch`; None if every batch must be changed."""


def rules_for(log: "Log", context: AppendContext) -> LeaderRules:
    rules = log.leader_rules
    config, now_ms, origin = log.config, context.now_ms, context.origin
    if (
        rules is not None
        and rules.now_ms == now_ms
        and rules.origin is origin
        and rules.config is config
        and rules.validation.decompressed_bytes_max == context.output_bytes_max
    ):
        return rules
    stamps = config.stamps_append_time
    validation = ValidationRules(
        now_ms=now_ms,
        partition=log.topic_partition,
        from_client=origin is AppendOrigin.CLIENT,
        keys_required=config.compacts,
        timestamp_type=TimestampType.LOG_APPEND_TIME if stamps else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        batch_bytes_max=config.max_message_bytes,
        decompressed_bytes_max=context.output_bytes_max,
    )
    codec = _CODECS[config.compression_type]
    stamp_limits = None
    if origin is AppendOrigin.CLIENT and not stamps and codec in {None, Compression.NONE}:
        earliest_ms, latest_ms = timestamp_range(validation)
        size_max = min(config.max_message_bytes, config.segment_size_max)
        stamp_limits = (earliest_ms, latest_ms, validation.keys_required, size_max)
    log.leader_rules = LeaderRules(config, now_ms, origin, validation, codec, stamp_limits)
    return log.leader_rules


_CODECS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def prepare(records: Buffer, rules: LeaderRules) -> PreparedBatch:
    """Does not use the log, so it may run in any thread."""
    batch = sole_batch(records)
    max_timestamp_ms = validate_batch(batch, rules.validation).max_timestamp
    return PreparedBatch(_in_topic_codec(batch, rules), max_timestamp_ms)


def append_as_leader(
    log: "Log", records: Buffer | PreparedBatch | VerifiedBatch, context: AppendContext
) -> AppendResult:
    if isinstance(records, tuple):
        if isinstance(records, VerifiedBatch):
            return append_as_leader(
                log, records.records, context._replace(verification=records.verification)
            )
        return _append_prepared(log, [records], context)
    if context.origin is AppendOrigin.RAFT_LEADER:
        result = append_assigned(log, records, context)
        if result is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the append holds no whole batch")
        return result
    rules = rules_for(log, context)
    if rules.stamp_limits is not None:
        header = stamp_batch(records, log.log_end_offset, context.leader_epoch, rules.stamp_limits)
        if header is not None:
            return _append_stamped(log, records, header, context)
    if context.origin is AppendOrigin.CLIENT:
        return _append_prepared(log, [prepare(records, rules)], context)
    batches = list(iterate_batches(records))
    if not batches:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the append holds no batch")
    found = [validate_batch(batch, rules.validation).max_timestamp for batch in batches]
    prepared = map(PreparedBatch, (_in_topic_codec(batch, rules) for batch in batches), found)
    return _append_prepared(log, list(prepared), context)


def _append_prepared(
    log: "Log", prepared: Sequence[PreparedBatch], context: AppendContext
) -> AppendResult:
    headers: list[ScannedBatch] = []
    producer_append: ProducerAppend | None = None
    for batch, max_timestamp_ms in prepared:
        header = _future_header(log, batch, headers, context.leader_epoch, max_timestamp_ms)
        headers.append(header)
        if batch.producer_id >= 0:
            if producer_append is None:
                producer_append = log.producers.begin_append(
                    context.origin,
                    transaction_version=context.transaction_version,
                    verification=context.verification,
                )
            duplicate = _check_producer(producer_append, batch, header)
            if duplicate is not None:
                return _answer_duplicate(log, duplicate)
    timestamp_type = rules_for(log, context).validation.timestamp_type
    buffers = [
        _assigned(each.batch, header, timestamp_type)
        for each, header in zip(prepared, headers, strict=True)
    ]
    _write(log, buffers, headers, producer_append, context)
    is_stamped = timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time_ms = headers[-1][MAX_TIMESTAMP] if is_stamped else NO_TIMESTAMP
    return AppendResult(
        headers[0][BASE_OFFSET], headers[-1][LAST_OFFSET], append_time_ms, log.log_start_offset
    )


def _append_stamped(
    log: "Log", records: Buffer, header: ScannedBatch, context: AppendContext
) -> AppendResult:
    """The batch is validated and already has its offset."""
    append: ProducerAppend | None = None
    expected: ProducerEntry | None = None
    producers = log.producers
    if header[PRODUCER_ID] >= 0:
        expected = producers.expects(header)
        if expected is None:
            append = producers.begin_append(context.origin, verification=context.verification)
            try:
                duplicate = append.add_data(data_batch(header))
            except NotCachedError:
                # A retry of the append must find the batch as the client sent it.
                patch_base_offset(memoryview(records), 0, 0)
                raise
            if duplicate is not None:
                return _answer_duplicate(log, duplicate)
    _write(log, (records,), (header,), append, context)
    if expected is not None:
        producers.advance(expected, header)
    return AppendResult(
        header[BASE_OFFSET], header[LAST_OFFSET], NO_TIMESTAMP, log.log_start_offset
    )


def _answer_duplicate(log: "Log", duplicate: BatchMetadata) -> AppendResult:
    return AppendResult(
        duplicate.first_offset,
        duplicate.last_offset,
        duplicate.timestamp_ms,
        log.log_start_offset,
        is_duplicate=True,
    )


def _in_topic_codec(batch: RecordBatch, rules: LeaderRules) -> RecordBatch:
    """The batch in the topic's codec. Raises if it is too large for the topic or a segment."""
    config, codec = rules.config, rules.codec
    if codec is not None and codec is not batch.compression and not batch.is_control:
        batch = RecordBatch(recompress(batch, codec, _level(codec, config)))
        if batch.size_in_bytes > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {batch.size_in_bytes} bytes in {config.compression_type}, "
                f"{config.max_message_bytes} are allowed",
            )
    if batch.size_in_bytes > config.segment_size_max:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {batch.size_in_bytes} bytes, a segment holds {config.segment_size_max}",
        )
    return batch


def _level(codec: Compression, config: "LogConfig") -> int | None:
    if codec is Compression.GZIP:
        return None if config.compression_gzip_level < 0 else config.compression_gzip_level
    if codec is Compression.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec is Compression.ZSTD else None


def _future_header(
    log: "Log",
    batch: RecordBatch,
    before: Sequence[ScannedBatch],
    leader_epoch: LeaderEpoch,
    max_timestamp_ms: int,
) -> ScannedBatch:
    """The batch's header as it will be in the log, after the other batches of the same append."""
    if before:
        position = before[-1][POSITION] + before[-1][SIZE]
        base_offset = Offset(before[-1][LAST_OFFSET] + 1)
    else:
        position, base_offset = 0, log.log_end_offset
    return (
        position, batch.size_in_bytes, base_offset, Offset(base_offset + batch.last_offset_delta),
        leader_epoch, max_timestamp_ms, batch.attributes, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.last_offset_delta, batch.record_count, batch.base_timestamp,
    )  # fmt: skip


def _check_producer(
    append: ProducerAppend, batch: RecordBatch, header: ScannedBatch
) -> BatchMetadata | None:
    if not header[ATTRIBUTES] & CONTROL_FLAG:
        return append.add_data(data_batch(header))
    marker = end_marker(batch, header[BASE_OFFSET])
    if marker is not None:
        append.add_marker(marker)
    return None


def _assigned(batch: RecordBatch, header: ScannedBatch, timestamp_type: TimestampType) -> Buffer:
    """The batch with our offset, epoch and time; patched in place if the buffer is writable."""
    buffer = bytearray(batch.view) if batch.view.readonly else batch.view
    patch_base_offset(buffer, 0, header[BASE_OFFSET])
    patch_leader_epoch(buffer, 0, header[LEADER_EPOCH])
    if (
        header[MAX_TIMESTAMP] != batch.max_timestamp
        or timestamp_type is TimestampType.LOG_APPEND_TIME
    ):
        patch_max_timestamp(buffer, 0, timestamp_type, header[MAX_TIMESTAMP])
    return buffer


# Batches whose offsets are already assigned


def append_assigned(log: "Log", records: Buffer, context: AppendContext) -> AppendResult | None:
    """Appends batches that a follower fetched or the raft leader wrote."""
    headers, _, problem = scan_batches(records, 0, len(records), True)
    if problem not in {None, INCOMPLETE}:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{log.topic_partition} received a bad batch: {problem}"
        )
    headers = _of_known_epochs(headers, context)
    if not headers:
        return None
    first, last = headers[0], headers[-1]
    if first[BASE_OFFSET] < log.log_end_offset:
        raise UnexpectedOffsetError(
            f"{log.topic_partition} ends at {log.log_end_offset} and received offsets "
            f"{first[BASE_OFFSET]} to {last[LAST_OFFSET]}",
            first[BASE_OFFSET],
            last[LAST_OFFSET],
        )
    view = memoryview(records)
    for group in _fitting_groups(headers, log.config.segment_size_max):
        append = _replicated_producers(log, view, group, context)
        start, end = group[0][POSITION], group[-1][POSITION] + group[-1][SIZE]
        _write(log, [view[start:end]], group, append, context)
    return AppendResult(first[BASE_OFFSET], last[LAST_OFFSET], NO_TIMESTAMP, log.log_start_offset)


def _of_known_epochs(headers: list[ScannedBatch], context: AppendContext) -> list[ScannedBatch]:
    for index, header in enumerate(headers):
        epoch = header[LEADER_EPOCH]
        if context.origin is AppendOrigin.RAFT_LEADER and epoch != context.leader_epoch:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"a batch of epoch {epoch} from the leader of epoch {context.leader_epoch}",
            )
        if epoch > context.leader_epoch:
            # The sender has lost its own leadership in the meantime (KAFKA-18723).
            return headers[:index]
    return headers


def _fitting_groups(headers: list[ScannedBatch], segment_bytes: int) -> list[list[ScannedBatch]]:
    """One group if everything fits into one segment by bytes and by offsets, which is the rule."""
    first, last = headers[0], headers[-1]
    if (
        last[POSITION] + last[SIZE] - first[POSITION] <= segment_bytes
        and last[LAST_OFFSET] - first[BASE_OFFSET] <= INT32_MAX
    ):
        return [headers]
    groups: list[list[ScannedBatch]] = []
    size = 0
    for header in headers:
        if (
            not groups
            or size + header[SIZE] > segment_bytes
            or header[LAST_OFFSET] - groups[-1][0][BASE_OFFSET] > INT32_MAX
        ):
            groups.append([])
            size = 0
        groups[-1].append(header)
        size += header[SIZE]
    return groups


def _replicated_producers(
    log: "Log", view: memoryview, headers: Sequence[ScannedBatch], context: AppendContext
) -> ProducerAppend | None:
    append: ProducerAppend | None = None
    for header in headers:
        if header[PRODUCER_ID] < 0:
            continue
        if append is None:
            append = log.producers.begin_append(context.origin)
        if not header[ATTRIBUTES] & CONTROL_FLAG:
            append.add_data(data_batch(header))
            continue
        marker = end_marker(RecordBatch(view, header[POSITION]), header[BASE_OFFSET])
        if marker is not None:
            append.add_marker(marker)
    return append


# Writing


def _write(
    log: "Log",
    buffers: Sequence[Buffer],
    headers: Sequence[ScannedBatch],
    producer_append: ProducerAppend | None,
    context: AppendContext,
) -> None:
    first, last = headers[0], headers[-1]
    segment = log.segments.active
    start = segment.file.size()
    if _must_roll(log, segment, start, headers, context.now_ms):
        # At the log's end, so that a refused write leaves no gap before it, unless the offsets
        # would be too far from there.
        is_far = last[LAST_OFFSET] - log.log_end_offset > INT32_MAX
        segment = log.roll(context.now_ms, Offset(first[BASE_OFFSET] if is_far else 0))
        start = segment.file.size()
    try:
        segment.append(buffers)
    except OSError as error:
        log.directory.note_refused_size(sum(map(len, buffers)))
        _undo(segment, start, error)
    if log.directory.is_refusing:
        log.directory.write_succeeded(segment.file.size() - start)
    log.log_end_offset = Offset(last[LAST_OFFSET] + 1)
    log.appended_bytes += segment.file.size() - start
    shift = start - first[POSITION]
    epochs = log.epochs
    for header in headers:
        segment.index_batch(header[POSITION] + shift, header[LAST_OFFSET], header[MAX_TIMESTAMP])
        if header[LEADER_EPOCH] != epochs.latest_epoch and header[LEADER_EPOCH] > NO_EPOCH:
            epochs.assign(LeaderEpoch(header[LEADER_EPOCH]), Offset(header[BASE_OFFSET]))
    if producer_append is not None:
        log.producers.apply(producer_append)
        complete(log.producers, segment, producer_append.completed)
    log.producers.end_offset = log.log_end_offset
    if log.flush_policy == "group":
        log.mark_dirty()
    elif (
        log.flush_policy == "strict"
        or log.log_end_offset - log.flushed_offset >= log.config.flush_messages
    ):
        log.flush(may_owe=True)


def _must_roll(
    log: "Log", segment: Segment, size: int, headers: Sequence[ScannedBatch], now_ms: int
) -> bool:
    """Full by size, by time, by index entries, or too far from its base offset."""
    config = log.config
    first, last = headers[0], headers[-1]
    added_bytes = last[POSITION] + last[SIZE] - first[POSITION]
    if size > config.segment_size_max - added_bytes:
        return True
    if size > 0:
        newest_ms = (
            last[MAX_TIMESTAMP]
            if first is last
            else max(header[MAX_TIMESTAMP] for header in headers)
        )
        waited_ms = segment.waited_for_roll_ms(now_ms, newest_ms)
        if waited_ms > config.segment_age_max_ms - segment.roll_jitter_ms:
            return True
    return segment.is_full_of_entries or not segment.can_hold(last[LAST_OFFSET])


def _undo(segment: Segment, size: int, error: OSError) -> None:
    """Offsets in memory have not moved; truncate the file back to them, then refuse or fail."""
    if error.errno not in WRITES_REFUSED:
        with contextlib.suppress(OSError):
            segment.cut(size)
        raise error
    if segment.file.size() != size:
        segment.cut(size)
    raise refusal(segment.path(), error) from error
