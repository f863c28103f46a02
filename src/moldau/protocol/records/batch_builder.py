"""Builds record batches v2. The header is written last, when counts and times are known."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from moldau.frozen import frozen
from moldau.protocol.records.batches import (
    APPEND_TIME_FLAG,
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_OFFSET,
    DELETE_HORIZON_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    Record,
    RecordBatch,
    TimestampType,
)
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.compression import Compression, compress
from moldau.protocol.records.record_loops import encode_records
from moldau.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    ProducerEpoch,
)


@frozen(kw_only=True)
class BatchOptions:
    """The fields of a batch's header that do not follow from its records."""

    # None: the first record's offset.
    base_offset: int | None = None
    # None: the last record's offset. Compaction keeps the original one.
    last_offset: int | None = None
    partition_leader_epoch: int = -1
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    # Set: the batch is stamped with this append time. None: create time.
    append_time_ms: int | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None

    @property
    def attributes(self) -> int:
        return (
            self.compression
            | (APPEND_TIME_FLAG if self.append_time_ms is not None else 0)
            | (TRANSACTIONAL_FLAG if self.is_transactional else 0)
            | (CONTROL_FLAG if self.is_control else 0)
            | (DELETE_HORIZON_FLAG if self.delete_horizon_ms is not None else 0)
        )


DEFAULT_OPTIONS = BatchOptions()
_timestamp_of = attrgetter("timestamp")


class BatchBuilder:
    """Collects records and assigns consecutive offsets, unless the records have their own."""

    __slots__ = ("_options", "_records", "_size_bytes_max")

    def __init__(self, options: BatchOptions = DEFAULT_OPTIONS) -> None:
        self._options = options
        self._records: list[Record] = []
        self._size_bytes_max = BATCH_HEADER_SIZE

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes_max(self) -> int:
        """An upper bound of the uncompressed size so far."""
        return self._size_bytes_max

    @property
    def next_offset(self) -> int:
        if self._records:
            return self._records[-1].offset + 1
        return self._options.base_offset or 0

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        offset: int | None = None,
    ) -> None:
        record_offset = self.next_offset if offset is None else offset
        self.append_record(Record(record_offset, timestamp, key, value, tuple(headers)))

    def append_record(self, record: Record) -> None:
        self._records.append(record)
        # 5 length, 1 attributes, 10 timestamp, 5 offset, 5 key, 5 value, 5 header count
        self._size_bytes_max += 36 + len(record.key or b"") + len(record.value or b"")
        for name, content in record.headers:
            self._size_bytes_max += 10 + 4 * len(name) + len(content or b"")

    def build(self) -> bytes:
        return build_batch(self._records, self._options)


def build_batch(records: Sequence[Record], options: BatchOptions = DEFAULT_OPTIONS) -> bytes:
    """One batch of these records, whose offsets and timestamps are kept. Needs at least one record;
    use empty_batch() for a batch without records.
    """
    if not records:
        raise ValueError("a batch needs a record")
    base_offset = records[0].offset if options.base_offset is None else options.base_offset
    base_timestamp = _base_timestamp(records[0].timestamp, options)
    body = encode_records(records, base_timestamp, BATCH_HEADER_SIZE, base_offset)
    last_offset = records[-1].offset if options.last_offset is None else options.last_offset
    return bytes(
        finish_batch(
            body,
            options,
            BatchFacts(
                base_offset=base_offset,
                last_offset_delta=last_offset - base_offset,
                base_timestamp=base_timestamp,
                max_timestamp=max(map(_timestamp_of, records)),
                record_count=len(records),
            ),
        )
    )


def _base_timestamp(first_timestamp: int, options: BatchOptions) -> int:
    if options.delete_horizon_ms is not None:
        return options.delete_horizon_ms
    if options.append_time_ms is not None:
        return options.append_time_ms
    return first_timestamp


class BatchFacts(NamedTuple):
    """The header fields that follow from a batch's records."""

    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    record_count: int


def finish_batch(body: bytearray, options: BatchOptions, facts: BatchFacts) -> bytearray:
    """Compresses the bytes after the space for the header, and writes the header. Uncompressed
    bodies stay in place.
    """
    batch = body
    if options.compression is not Compression.NONE:
        with memoryview(body) as view, view[BATCH_HEADER_SIZE:] as plain:
            packed = compress(options.compression, plain, options.compression_level)
        batch = bytearray(BATCH_HEADER_SIZE)
        batch += packed
    max_timestamp = facts.max_timestamp
    if options.append_time_ms is not None:
        max_timestamp = options.append_time_ms
    BATCH_HEADER.pack_into(
        batch,
        0,
        facts.base_offset,
        len(batch) - LOG_OVERHEAD,
        options.partition_leader_epoch,
        MAGIC,
        0,
        options.attributes,
        facts.last_offset_delta,
        facts.base_timestamp,
        max_timestamp,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        facts.record_count,
    )
    _write_crc(batch)
    return batch


def _write_crc(batch: bytearray) -> None:
    with memoryview(batch) as view, view[ATTRIBUTES_OFFSET:] as covered:
        checksum = crc32c(covered)
    batch[CRC_OFFSET : CRC_OFFSET + 4] = checksum.to_bytes(4, "big")


def empty_batch(original: RecordBatch) -> bytes:
    """The header alone, which compaction keeps of a batch whose records are gone but whose
    producer's last sequence is still needed.
    """
    options = BatchOptions(
        partition_leader_epoch=original.partition_leader_epoch,
        append_time_ms=(
            original.max_timestamp
            if original.timestamp_type is TimestampType.LOG_APPEND_TIME
            else None
        ),
        producer_id=original.producer_id,
        producer_epoch=original.producer_epoch,
        base_sequence=original.base_sequence,
        is_transactional=original.is_transactional,
        is_control=original.is_control,
    )
    facts = BatchFacts(
        base_offset=original.base_offset,
        last_offset_delta=original.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=original.max_timestamp,
        record_count=0,
    )
    return bytes(finish_batch(bytearray(BATCH_HEADER_SIZE), options, facts))


def recompress(batch: RecordBatch, compression: Compression, level: int | None = None) -> bytearray:
    """The same batch in another codec: the records' bytes are unchanged."""
    buffer, start = batch.body()
    with memoryview(buffer) as view, view[start:] as plain:
        packed: Buffer = compress(compression, plain, level)
        recoded = bytearray(batch.view[:BATCH_HEADER_SIZE])
        recoded += packed
    attributes = batch.attributes & ~COMPRESSION_MASK | compression
    recoded[8:12] = (len(recoded) - LOG_OVERHEAD).to_bytes(4, "big")
    recoded[ATTRIBUTES_OFFSET : ATTRIBUTES_OFFSET + 2] = attributes.to_bytes(2, "big", signed=True)
    _write_crc(recoded)
    return recoded
