"""The checks of a leader before it appends a producer's batch. Codes, order and texts are those of
Kafka 4.3's log validator, stricter where noted. `storage/log/append.py` assigns offsets.
"""

from typing import NamedTuple

from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import (
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    RecordBatch,
    TimestampType,
)
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.record_loops import (
    BAD_NULL,
    BAD_OFFSET_DELTA,
    BAD_TIMESTAMP,
    NO_KEY,
    validate_records,
)
from moldau.types import INT64_MAX, NO_TIMESTAMP, Buffer, TopicPartition

SHOWN_ERRORS_MAX = 3
_WRONG_TIME = "One or more records have been rejected due to invalid timestamp"


@frozen(kw_only=True)
class ValidationRules:
    now_ms: int
    # The target partition, for the text of a refusal.
    partition: TopicPartition | None = None
    # False for appends of a coordinator or the controller: only they may write markers and state.
    from_client: bool = True
    # The topic is compacted.
    keys_required: bool = False
    # The topic's message.timestamp.type.
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    batch_bytes_max: int | None = None
    # None: 16 times the compressed size, at least 64 MiB.
    decompressed_bytes_max: int | None = None
    # False for Produce requests below version 7, whose peers may not know zstd.
    zstd_allowed: bool = True


class RecordError(NamedTuple):
    batch_index: int
    message: str

    def __str__(self) -> str:
        return f"RecordError(batchIndex={self.batch_index}, message='{self.message}')"


class InvalidRecordsError(KafkaError):
    """The batch is refused because of these records. Produce responses list them and quote the
    detail, which uses Kafka's words because its tools print both.
    """

    def __init__(self, code: ErrorCode, detail: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, detail)
        self.record_errors = record_errors


class ValidatedBatch(NamedTuple):
    # Of the records, or the append time. The time index pairs it with the batch's last offset.
    max_timestamp: int
    # The first record that has it, relative to the base offset (for append time, the last record).
    offset_delta_of_max_timestamp: int
    record_count: int


def sole_batch(records: Buffer | None) -> RecordBatch:
    """The single batch that a Produce request may contain per partition."""
    if records is None or len(records) == 0:
        raise _invalid("the request contains no batch")
    if len(records) < LOG_OVERHEAD:
        raise _invalid("the request contains only a part of a batch")
    length = int.from_bytes(records[LENGTH_OFFSET : LENGTH_OFFSET + 4], "big", signed=True)
    if length > len(records) - LOG_OVERHEAD:
        raise _invalid("the request contains only a part of a batch")
    batch = RecordBatch(records)
    if batch.size_in_bytes != len(records):
        raise _invalid("the request contains more than one batch")
    return batch


def validate_batch(batch: RecordBatch, rules: ValidationRules) -> ValidatedBatch:
    """Raises KafkaError, or InvalidRecordsError if the batch is sound but some records are refused.
    The batch is not changed.
    """
    _check_header(batch, rules)
    batch.check_crc()
    return _check_records(batch, rules)


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, detail)


def _check_header(batch: RecordBatch, rules: ValidationRules) -> None:
    if rules.from_client and batch.base_offset != 0:
        raise _invalid(f"base offset {batch.base_offset}, expected 0")
    if rules.batch_bytes_max is not None and batch.size_in_bytes > rules.batch_bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {batch.size_in_bytes} bytes, {rules.batch_bytes_max} are allowed",
        )
    if batch.compression is Compression.ZSTD and not rules.zstd_allowed:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
        )
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # Kafka lets this pass on topics with create time if a timestamp is set, and clears the bit.
        wrong = RecordError(0, "Producer should not set timestamp type to LogAppendTime.")
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, _WRONG_TIME, [wrong])
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1:
        raise _invalid(
            f"{batch.record_count} records and a last offset delta of {batch.last_offset_delta}"
        )
    if rules.from_client:
        _check_client_batch(batch)


def _check_client_batch(batch: RecordBatch) -> None:
    if batch.is_control:
        raise _invalid("clients cannot write control records")
    if batch.has_delete_horizon:
        raise _invalid("clients cannot set a delete horizon")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise _invalid(f"producer id {batch.producer_id} with sequence {batch.base_sequence}")


def _check_records(batch: RecordBatch, rules: ValidationRules) -> ValidatedBatch:
    stamps = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    buffer, start = batch.body(rules.decompressed_bytes_max)
    max_timestamp, index, refused_count, refused = validate_records(
        buffer,
        (start, len(buffer)),
        batch.record_count,
        batch.base_timestamp,
        None if stamps else timestamp_range(rules),
        rules.keys_required,
    )
    if refused_count:
        raise _refusal(refused_count, refused, rules)
    if stamps:
        return ValidatedBatch(rules.now_ms, batch.last_offset_delta, batch.record_count)
    return ValidatedBatch(max(max_timestamp, NO_TIMESTAMP), index, batch.record_count)


def timestamp_range(rules: ValidationRules) -> tuple[int, int]:
    """Inclusive. Negative times are refused (Kafka's defaults let them pass); -1 is "none"."""
    earliest = max(rules.now_ms - rules.timestamp_before_max_ms, 0)
    latest = min(rules.now_ms + rules.timestamp_after_max_ms, INT64_MAX)
    return earliest, latest


def _refusal(
    refused_count: int, refused: list[tuple[int, int, int]], rules: ValidationRules
) -> InvalidRecordsError:
    """A wrong timestamp determines the code, wherever it is among the first thousand records."""
    errors = [
        RecordError(index, _complaint(index, kind, timestamp, rules))
        for index, kind, timestamp in refused
    ]
    if any(kind == BAD_TIMESTAMP for _, kind, _ in refused):
        return InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, _WRONG_TIME, errors)
    shown = ", ".join(map(str, errors[:SHOWN_ERRORS_MAX]))
    return InvalidRecordsError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {refused_count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors,
    )


def _complaint(index: int, kind: int, timestamp: int, rules: ValidationRules) -> str:
    if kind == NO_KEY:
        return (
            "Compacted topic cannot accept message without key in topic partition "
            f"{rules.partition}"
        )
    if kind == BAD_TIMESTAMP:
        earliest, latest = rules.now_ms - rules.timestamp_before_max_ms, timestamp_range(rules)[1]
        if timestamp < 0:
            # Only Moldau refuses this.
            earliest = max(earliest, 0)
        return (
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]"
        )
    # Only Moldau refuses this, so the words are not Kafka's.
    if kind == BAD_NULL:
        return "the length of a key, value or header is below -1, which is null"
    assert kind == BAD_OFFSET_DELTA, "the loops know no other kind"
    return "the offset delta is not the record's index in the batch"
