"""Record batch v2 as a view over bytes. Reading a batch never copies it; the few fields that a
broker changes are patched in place, and only append time needs a new checksum.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.compression import Compression, codec_of, decompress, output_limit
from moldau.protocol.records.record import Record as Record  # noqa: PLC0414  (part of this module's interface)
from moldau.protocol.records.record_loops import decode_records, first_record_at
from moldau.types import NO_SEQUENCE, Buffer, ProducerEpoch

if TYPE_CHECKING:
    from moldau.protocol.records.batch_validation import ValidatedBatch, ValidationRules

BATCH_HEADER_SIZE = 61
LOG_OVERHEAD = 12
BATCH_LENGTH_MIN = BATCH_HEADER_SIZE - LOG_OVERHEAD
MAGIC = 2
# The smallest length in any message format; a shorter one is unreadable.
BATCH_LENGTH_MIN_ANY_MAGIC = 14

LENGTH_OFFSET = 8
PARTITION_LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
LAST_OFFSET_DELTA_OFFSET = 23
BASE_TIMESTAMP_OFFSET = 27
MAX_TIMESTAMP_OFFSET = 35
PRODUCER_ID_OFFSET = 43
PRODUCER_EPOCH_OFFSET = 51
BASE_SEQUENCE_OFFSET = 53
RECORD_COUNT_OFFSET = 57

COMPRESSION_MASK = 0x07
APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
KNOWN_ATTRIBUTES = 0x7F

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_uint32 = struct.Struct(">I")
_int64 = struct.Struct(">q")


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class RecordBatch:
    """Exactly one batch. Raises CORRUPT_MESSAGE if no v2 batch can be at `position`, INVALID_RECORD
    for the message formats v0 and v1, which Kafka 4 refuses too.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_in_bytes",
        "view",
    )
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        size = _batch_size(buffer, position)
        self.position = position
        self.size_in_bytes = size
        self.view = memoryview(buffer)[position : position + size]
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = BATCH_HEADER.unpack_from(buffer, position)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets=[{self.base_offset}, {self.last_offset}], "
            f"count={self.record_count}, bytes={self.size_in_bytes}, "
            f"attributes={self.attributes:#x}, producer_id={self.producer_id}, "
            f"leader_epoch={self.partition_leader_epoch})"
        )

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """Raises UNSUPPORTED_COMPRESSION_TYPE for an unassigned id."""
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Compaction stores it in the base timestamp field, which otherwise is the first
        record's.
        """
        return self.base_timestamp if self.has_delete_horizon else None

    def crc_is_valid(self) -> bool:
        return crc32c(self.view[ATTRIBUTES_OFFSET:]) == self.crc

    def check_crc(self) -> None:
        computed = crc32c(self.view[ATTRIBUTES_OFFSET:])
        if computed != self.crc:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch at offset {self.base_offset}: stored checksum {self.crc:#010x}, "
                f"computed {computed:#010x}",
            )

    def body(self, decompressed_bytes_max: int | None = None) -> tuple[Buffer, int]:
        """The uncompressed records: a buffer and where they start in it."""
        if not self.is_compressed:
            return self.view, BATCH_HEADER_SIZE
        packed = self.view[BATCH_HEADER_SIZE:]
        output_max = decompressed_bytes_max
        if output_max is None:
            output_max = output_limit(len(packed))
        return decompress(self.compression, packed, output_max), 0

    def records(self, decompressed_bytes_max: int | None = None) -> list[Record]:
        if self.record_count == 0 and self.size_in_bytes == BATCH_HEADER_SIZE:
            # Compaction removed the records and kept the header.
            return []
        buffer, start = self.body(decompressed_bytes_max)
        return decode_records(
            buffer,
            (start, len(buffer)),
            self.record_count,
            self.base_offset,
            self.base_timestamp,
            self.max_timestamp if self.attributes & APPEND_TIME_FLAG else None,
        )

    def first_record_at(
        self, timestamp_min: int, offset_min: int, decompressed_bytes_max: int | None = None
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after both the time and the offset."""
        if self.record_count == 0:
            return None
        buffer, start = self.body(decompressed_bytes_max)
        append_time = self.max_timestamp if self.attributes & APPEND_TIME_FLAG else None
        return first_record_at(
            buffer,
            (start, len(buffer)),
            self.record_count,
            (self.base_offset, self.base_timestamp, append_time),
            timestamp_min,
            offset_min,
        )

    def validate(self, rules: "ValidationRules") -> "ValidatedBatch":
        """The full produce-time check; see batch_validation.py."""
        from moldau.protocol.records.batch_validation import validate_batch

        return validate_batch(self, rules)


def _batch_size(buffer: Buffer, position: int) -> int:
    left = len(buffer) - position
    if position < 0 or left < LOG_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{max(left, 0)} bytes cannot hold a batch")
    (length,) = _int32.unpack_from(buffer, position + LENGTH_OFFSET)
    if length < BATCH_LENGTH_MIN_ANY_MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"impossible batch length {length}")
    if left > MAGIC_OFFSET:
        _check_magic(buffer[position + MAGIC_OFFSET])
    size: int = LOG_OVERHEAD + length
    if size < BATCH_HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"impossible batch length {length}")
    if size > left:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes, only {left} are left")
    return size


def _check_magic(magic: int) -> None:
    if magic == MAGIC:
        return
    if magic in {0, 1}:
        # Message sets v0/v1 are refused, not converted: Kafka 4 brokers do the same (KIP-724).
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"message format v{magic} is not accepted any more; use v2"
        )
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic}")


def iterate_batches(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[RecordBatch]:
    """Yields complete batches only: a partial batch at the end of a fetch is skipped. Raises the
    errors of RecordBatch where no batch can begin.
    """
    stop = len(buffer) if end is None else end
    bounded = buffer if stop == len(buffer) else memoryview(buffer)[:stop]
    position = start
    while stop - position >= LOG_OVERHEAD:
        (length,) = _int32.unpack_from(bounded, position + LENGTH_OFFSET)
        if length > stop - position - LOG_OVERHEAD:
            return
        batch = RecordBatch(bounded, position)
        yield batch
        position += batch.size_in_bytes


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers are 31 bits wide and wrap to zero."""
    return (sequence + increment) & 0x7FFF_FFFF


def patch_base_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """The checksum does not cover it."""
    _int64.pack_into(buffer, position, offset)


def patch_leader_epoch(buffer: bytearray | memoryview, position: int, epoch: int) -> None:
    """The checksum does not cover it."""
    _int32.pack_into(buffer, position + PARTITION_LEADER_EPOCH_OFFSET, epoch)


def patch_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Replaces the producer's timestamps by our clock's time, for all records of the batch."""
    patch_max_timestamp(buffer, position, TimestampType.LOG_APPEND_TIME, now_ms)


def patch_max_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp_type: TimestampType, timestamp: int
) -> None:
    """Recomputes the checksum."""
    at = position + ATTRIBUTES_OFFSET
    (attributes,) = _int16.unpack_from(buffer, at)
    attributes &= ~APPEND_TIME_FLAG
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= APPEND_TIME_FLAG
    _int16.pack_into(buffer, at, attributes)
    _int64.pack_into(buffer, position + MAX_TIMESTAMP_OFFSET, timestamp)
    patch_crc(buffer, position)


def patch_crc(buffer: bytearray | memoryview, position: int) -> None:
    (length,) = _int32.unpack_from(buffer, position + LENGTH_OFFSET)
    with memoryview(buffer) as view:
        covered = view[position + ATTRIBUTES_OFFSET : position + LOG_OVERHEAD + length]
        _uint32.pack_into(buffer, position + CRC_OFFSET, crc32c(covered))
        covered.release()
