"""The fate of one batch in a compaction pass: kept byte for byte, rewritten with fewer records,
reduced to an empty header, or dropped. Offsets, sequences and the codec never change.

Tombstones, and markers of transactions without data, get a delete horizon when a pass first sees
them (KIP-534) and are removed after it: until then readers have time to see them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
from moldau.protocol.records.record_loops import ScannedBatch
from moldau.storage.compaction.loops import OffsetMap, filter_records, rebase_timestamps
from moldau.storage.compaction.plan import LastRecord
from moldau.storage.compaction.transactions import TransactionTracker
from moldau.types import INT64_MAX, NO_TIMESTAMP, Buffer

_FLAGS_WITHOUT_RECORDS = APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def batch_body(view: memoryview, header: ScannedBatch) -> Buffer:
    """The batch's records, decompressed."""
    position = header[0]
    body = view[position + BATCH_HEADER_SIZE : position + header[1]]
    if header[6] & COMPRESSION_MASK:
        return decompress(codec_of(header[6]), body, STORED_OUTPUT_BYTES_MAX)
    return body


def control_type_in(view: memoryview, header: ScannedBatch) -> ControlType | None:
    """None if an earlier pass removed the control record."""
    if header[11] == 0:
        return None
    return control_type_of(RecordBatch(view, header[0]).records()[0].key)


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
        end_offset: int,
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

    def filter(self, view: memoryview, headers: list[ScannedBatch]) -> list[tuple[Buffer, int]]:
        """The bytes to write for these batches, each with its last offset."""
        kept: list[tuple[Buffer, int]] = []
        counts = self.counts
        for header in headers:
            counts.bytes_read += header[1]
            counts.records_read += header[11]
            batch = self._filter(view, header)
            if batch is None and self._must_stay(header):
                batch = _empty_batch(header)
            if batch is not None:
                counts.bytes_kept += len(batch)
                kept.append((batch, header[3]))
        return kept

    def _filter(self, view: memoryview, header: ScannedBatch) -> Buffer | None:
        attributes = header[6]
        horizon_ms = header[12] if attributes & DELETE_HORIZON_FLAG else None
        if attributes & CONTROL_FLAG:
            return self._filter_control(view, header, horizon_ms)
        if attributes & TRANSACTIONAL_FLAG and self._transactions.on_data(header[3], header[7]):
            return None
        if header[11] == 0:
            return None
        body = batch_body(view, header)
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        count, content, has_tombstone, delta_max = filter_records(
            self._map, body, header[11], header[2], keep_tombstones
        )
        self.counts.records_kept += count
        if count == 0:
            return None
        set_horizon = has_tombstone and horizon_ms is None
        if content is None:
            return self._rewrite(header, body) if set_horizon else _whole(view, header)
        max_timestamp_ms = header[5]
        if not attributes & APPEND_TIME_FLAG:
            max_timestamp_ms = _wrap64(header[12] + delta_max)
        remaining = _replace(header, max_timestamp_ms, count)
        return self._rewrite(remaining, content) if set_horizon else _build(remaining, content)

    def _filter_control(
        self, view: memoryview, header: ScannedBatch, horizon_ms: int | None
    ) -> Buffer | None:
        marker = control_type_in(view, header)
        is_needless = self._transactions.on_control(header[3], header[7], marker)
        if marker is None:
            return None
        if is_needless and horizon_ms is not None and horizon_ms <= self._now_ms:
            return None
        self.counts.records_kept += header[11]
        if is_needless and horizon_ms is None:
            return self._rewrite(header, batch_body(view, header))
        return _whole(view, header)

    def _rewrite(self, header: ScannedBatch, records: Buffer) -> Buffer:
        """Builds the batch with a delete horizon in place of the base timestamp."""
        shift_ms = _wrap64(header[12] - self._new_horizon_ms)
        stamped = rebase_timestamps(records, header[11], shift_ms)
        attributes = header[6] | DELETE_HORIZON_FLAG
        return _build((*header[:6], attributes, *header[7:12], self._new_horizon_ms), stamped)

    def _must_stay(self, header: ScannedBatch) -> bool:
        """Whether an empty batch must stay because its header is still needed: as the last sequence
        or last epoch of a live producer, or as the last offset of the cleaned range.
        """
        if header[3] + 1 == self._end_offset:
            return True
        last = self._last_records.get(header[7]) if header[7] >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header[3] == last.last_data_offset
        return bool(header[6] & CONTROL_FLAG) and header[8] == last.producer_epoch


def _whole(view: memoryview, header: ScannedBatch) -> memoryview:
    return view[header[0] : header[0] + header[1]]


def _replace(header: ScannedBatch, max_timestamp_ms: int, count: int) -> ScannedBatch:
    return (*header[:5], max_timestamp_ms, *header[6:11], count, header[12])


def _empty_batch(header: ScannedBatch) -> bytes:
    attributes = header[6] & _FLAGS_WITHOUT_RECORDS
    return _build((*header[:6], attributes, *header[7:11], 0, NO_TIMESTAMP), b"")


def _build(header: ScannedBatch, records: Buffer) -> bytes:
    """The batch of `header` with other records. Base offset, last offset and base sequence stay, so
    the last sequence does too.
    """
    _, _, base_offset, _, leader_epoch, max_timestamp, attributes = header[:7]
    producer_id, producer_epoch, base_sequence, delta, count, base_timestamp = header[7:]
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
