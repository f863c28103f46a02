"""The fate of one batch in a compaction pass: kept byte for byte, rewritten with fewer records,
reduced to an empty header, or dropped. Offsets, sequences and the codec never change.

Tombstones, and markers of transactions without data, get a delete horizon when a pass first sees
them (KIP-534) and are removed after it: until then readers have time to see them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from moldau.protocol.records.batches import (
    APPEND_TIME_FLAG,
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.compression import (
    STORED_OUTPUT_BYTES_MAX,
    codec_of,
    compress,
    decompress,
)
from moldau.protocol.records.control_records import ControlType, control_type_of
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE,
    ScannedBatch,
)
from moldau.storage.compaction.loops import OffsetMap, filter_records, rebase_timestamps
from moldau.storage.compaction.plan import LastRecord
from moldau.storage.compaction.transactions import TransactionTracker
from moldau.types import INT64_MAX, NO_TIMESTAMP, Buffer, Offset

_FLAGS_WITHOUT_RECORDS = APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def batch_body(view: memoryview, header: ScannedBatch) -> Buffer:
    """The batch's records, decompressed."""
    position = header[POSITION]
    body = view[position + BATCH_HEADER_SIZE : position + header[SIZE]]
    if header[ATTRIBUTES] & COMPRESSION_MASK:
        return decompress(codec_of(header[ATTRIBUTES]), body, STORED_OUTPUT_BYTES_MAX)
    return body


def control_type_in(view: memoryview, header: ScannedBatch) -> ControlType | None:
    """None if an earlier pass removed the control record."""
    if header[RECORD_COUNT] == 0:
        return None
    return control_type_of(RecordBatch(view, header[POSITION]).records()[0].key)


@dataclass(slots=True)
class FilterCounts:
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0


class BatchFilter:
    """Filters the batches of one pass over a log, in log order."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: TransactionTracker,
        last_records: Mapping[int, LastRecord],
        *,
        end_offset: Offset,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.counts = FilterCounts()
        self._map = offset_map
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)

    def filter(self, view: memoryview, headers: list[ScannedBatch]) -> list[tuple[Buffer, Offset]]:
        """The bytes to write for these batches, each with its last offset."""
        kept: list[tuple[Buffer, Offset]] = []
        counts = self.counts
        for header in headers:
            counts.bytes_read += header[SIZE]
            counts.records_read += header[RECORD_COUNT]
            batch = self._filter(view, header)
            if batch is None and self._must_stay(header):
                batch = _empty_batch(header)
            if batch is not None:
                counts.bytes_kept += len(batch)
                kept.append((batch, header[LAST_OFFSET]))
        return kept

    def _filter(self, view: memoryview, header: ScannedBatch) -> Buffer | None:
        attributes = header[ATTRIBUTES]
        horizon_ms = header[BASE_TIMESTAMP] if attributes & DELETE_HORIZON_FLAG else None
        if attributes & CONTROL_FLAG:
            return self._filter_control(view, header, horizon_ms)
        if attributes & TRANSACTIONAL_FLAG and self._transactions.on_data(
            header[LAST_OFFSET], header[PRODUCER_ID]
        ):
            return None
        if header[RECORD_COUNT] == 0:
            return None
        body = batch_body(view, header)
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        count, content, has_tombstone, delta_max = filter_records(
            self._map, body, header[RECORD_COUNT], header[BASE_OFFSET], keep_tombstones
        )
        self.counts.records_kept += count
        if count == 0:
            return None
        set_horizon = has_tombstone and horizon_ms is None
        if content is None:
            return self._rewrite(header, body) if set_horizon else _whole(view, header)
        max_timestamp_ms = header[MAX_TIMESTAMP]
        if not attributes & APPEND_TIME_FLAG:
            max_timestamp_ms = _wrap64(header[BASE_TIMESTAMP] + delta_max)
        remaining = _with(header, {MAX_TIMESTAMP: max_timestamp_ms, RECORD_COUNT: count})
        return self._rewrite(remaining, content) if set_horizon else _build(remaining, content)

    def _filter_control(
        self, view: memoryview, header: ScannedBatch, horizon_ms: int | None
    ) -> Buffer | None:
        marker = control_type_in(view, header)
        is_needless = self._transactions.on_control(
            header[LAST_OFFSET], header[PRODUCER_ID], marker
        )
        if marker is None:
            return None
        if is_needless and horizon_ms is not None and horizon_ms <= self._now_ms:
            return None
        self.counts.records_kept += header[RECORD_COUNT]
        if is_needless and horizon_ms is None:
            return self._rewrite(header, batch_body(view, header))
        return _whole(view, header)

    def _rewrite(self, header: ScannedBatch, records: Buffer) -> Buffer:
        """Builds the batch with a delete horizon in place of the base timestamp."""
        shift_ms = _wrap64(header[BASE_TIMESTAMP] - self._new_horizon_ms)
        stamped = rebase_timestamps(records, header[RECORD_COUNT], shift_ms)
        attributes = header[ATTRIBUTES] | DELETE_HORIZON_FLAG
        return _build(
            _with(header, {ATTRIBUTES: attributes, BASE_TIMESTAMP: self._new_horizon_ms}), stamped
        )

    def _must_stay(self, header: ScannedBatch) -> bool:
        """Whether an empty batch must stay because its header is still needed: as the last sequence
        or last epoch of a live producer, or as the last offset of the cleaned range.
        """
        if header[LAST_OFFSET] + 1 == self._end_offset:
            return True
        last = self._last_records.get(header[PRODUCER_ID]) if header[PRODUCER_ID] >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header[LAST_OFFSET] == last.last_data_offset
        return (
            bool(header[ATTRIBUTES] & CONTROL_FLAG)
            and header[PRODUCER_EPOCH] == last.producer_epoch
        )


def _whole(view: memoryview, header: ScannedBatch) -> memoryview:
    return view[header[POSITION] : header[POSITION] + header[SIZE]]


def _with(header: ScannedBatch, changes: Mapping[int, int]) -> ScannedBatch:
    fields = list(header)
    for field, number in changes.items():
        fields[field] = number
    return cast("ScannedBatch", tuple(fields))


def _empty_batch(header: ScannedBatch) -> bytes:
    attributes = header[ATTRIBUTES] & _FLAGS_WITHOUT_RECORDS
    changes = {ATTRIBUTES: attributes, RECORD_COUNT: 0, BASE_TIMESTAMP: NO_TIMESTAMP}
    return _build(_with(header, changes), b"")


def _build(header: ScannedBatch, records: Buffer) -> bytes:
    """The batch of `header` with other records. Base offset, last offset and base sequence stay, so
    the last sequence does too.
    """
    (
        _, _, base_offset, _, leader_epoch, max_timestamp, attributes, producer_id, producer_epoch,
        base_sequence, delta, count, base_timestamp,
    ) = header  # fmt: skip
    if attributes & COMPRESSION_MASK:
        records = compress(codec_of(attributes), records)
    length = BATCH_HEADER_SIZE - LOG_OVERHEAD + len(records)
    fields = (delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence)
    packed = BATCH_HEADER.pack(
        base_offset, length, leader_epoch, MAGIC, 0, attributes, *fields, count
    )
    crc = crc32c(records, crc32c(packed[ATTRIBUTES_OFFSET:]))
    packed = BATCH_HEADER.pack(
        base_offset, length, leader_epoch, MAGIC, crc, attributes, *fields, count
    )
    return b"".join((packed, records))


def _wrap64(number: int) -> int:
    """Java's wrapping arithmetic for long, which produced the timestamps."""
    return (number + 2**63) % 2**64 - 2**63
