"""Inspects a log segment or a metadata snapshot; both are sequences of batches. Yields them, their
records on request, and a problem for everything that would fail a reader or a recovery.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from moldau.protocol.errors import MoldauError
from moldau.protocol.records.batches import Record, RecordBatch
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX
from moldau.storage.inspection.batches import BatchHeader, Damage, Step, walk_batches
from moldau.storage.inspection.items import (
    BatchFound,
    FileKind,
    Item,
    Problem,
    RecordFound,
    Remark,
)
from moldau.storage.inspection.names import FileName
from moldau.storage.inspection.options import Decoding, InspectionOptions
from moldau.storage.inspection.records import RecordDecoder
from moldau.storage.inspection.source import InspectedFile
from moldau.types import FIRST_OFFSET, INT32_MAX, Offset

# A larger batch is checked, but its records are not held in memory.
_DECODED_BATCH_BYTES_MAX = 256 * 1024 * 1024
_RECOPY = "copy the partition again from a replica"


@dataclass(slots=True)
class LogTotals:
    """The totals of a walk over one file."""

    batches: int = 0
    records: int = 0
    # The offset after the last sound batch.
    next_offset: Offset | None = None
    control_types: list[int] = field(default_factory=list)


class LogInspection:
    """One pass over one file. `totals` are complete when `items` is exhausted."""

    def __init__(
        self, file: InspectedFile, name: FileName, decoding: Decoding, options: InspectionOptions
    ) -> None:
        self.totals = LogTotals()
        self._file = file
        self._path = file.path
        self._is_snapshot = name.kind is FileKind.METADATA_SNAPSHOT
        # A metadata snapshot is named after its end and counts its records from zero.
        self._base_offset = FIRST_OFFSET if self._is_snapshot else name.base_offset or FIRST_OFFSET
        self._expected_offset = self._base_offset
        self._options = options
        self._records_wanted = options.records or options.check_records or self._is_snapshot
        self._decoder = RecordDecoder(decoding, secrets=options.secrets)
        self._rows_left = options.rows_max

    def items(self) -> Iterator[Item]:
        if self._is_snapshot and not self._file.size_bytes:
            yield self._problem(
                0, "the snapshot is empty", "delete it; the log still has its records"
            )
            return
        for found in walk_batches(self._file, verify_crc=True, base_offset=self._base_offset):
            if isinstance(found, Damage):
                yield self._describe(found)
                continue
            if self._is_enough(found):
                yield Remark(self._path, found.position, "stopped here, as requested")
                return
            yield from self._batch(found)
        if self._is_snapshot:
            yield from self._check_snapshot_frame()

    def _is_enough(self, step: Step) -> bool:
        limit = self._options.bytes_max
        if limit is not None and step.position + step.header.size_bytes > limit:
            return True
        return self._rows_left is not None and self._rows_left <= 0

    def _count_row(self) -> None:
        if self._rows_left is not None:
            self._rows_left -= 1

    def _problem(self, position: int, what: str, remedy: str) -> Problem:
        return Problem(self._path, position, what, remedy)

    def _describe(self, damage: Damage) -> Problem:
        length = damage.end - damage.position
        if damage.batches_follow:
            return self._problem(
                damage.position,
                f"{length} bytes in the middle are not a batch: {damage.what}; "
                f"the next batch begins at {damage.end}",
                f"a recovery would cut the log here and lose everything after it; {_RECOPY}",
            )
        if self._is_snapshot:
            remedy = "delete the snapshot; an older one and the log have the same records"
        else:
            remedy = (
                "none; either a broker is writing here now, or the recovery after an unclean "
                "stop truncates them"
            )
        return self._problem(
            damage.position,
            f"torn tail: the last {length} bytes are not a batch: {damage.what}",
            remedy,
        )

    def _batch(self, step: Step) -> Iterator[Item]:
        header = step.header
        self.totals.batches += 1
        if not self._options.records:
            self._count_row()
        yield batch_found(step)
        if not step.crc_is_valid:
            yield self._problem(
                step.position,
                f"the checksum of the batch at offset {header.base_offset} does not match",
                f"its {header.record_count} records cannot be trusted; {_RECOPY}",
            )
            return
        self.totals.records += header.record_count
        yield from self._check_offsets(step.position, header)
        if self._records_wanted:
            yield from self._records(step)

    def _check_offsets(self, position: int, header: BatchHeader) -> Iterator[Problem]:
        remedy = f"readers would see records twice or not at all; {_RECOPY}"
        if header.base_offset < self._expected_offset:
            beyond = "before the segment's base" if self.totals.next_offset is None else "again"
            yield self._problem(
                position,
                f"offset {header.base_offset} {beyond}, {self._expected_offset} or more is due",
                remedy,
            )
        elif header.last_offset - self._base_offset > INT32_MAX:
            yield self._problem(
                position,
                f"offset {header.last_offset} is too far from the segment's base "
                f"{self._base_offset} to be indexed",
                "no broker appends such a batch: check that the file has its own name",
            )
        if header.record_count > header.last_offset_delta + 1:
            yield self._problem(
                position,
                f"{header.record_count} records in offsets "
                f"{header.base_offset} to {header.last_offset}",
                remedy,
            )
        self._expected_offset = max(self._expected_offset, Offset(header.last_offset + 1))
        self.totals.next_offset = self._expected_offset

    def _records(self, step: Step) -> Iterator[Item]:
        header = step.header
        if header.size_bytes > _DECODED_BATCH_BYTES_MAX:
            yield Remark(self._path, step.position, "the batch is too large to show its records")
            return
        try:
            batch = RecordBatch(self._file.window(step.position, header.size_bytes))
            records = batch.records(STORED_OUTPUT_BYTES_MAX)
        except MoldauError as error:
            yield self._problem(
                step.position,
                f"the records of the batch at offset {header.base_offset} are broken: {error}",
                "the checksum matches, so the producer wrote them like this; consumers will fail",
            )
            return
        complaint = _offsets_complaint(header, records)
        if complaint:
            yield self._problem(step.position, complaint, "a producer wrote it like this")
        if header.is_control or self._decoder.is_needed:
            for index, record in enumerate(records):
                yield from self._record(step, record, index)
        elif self._options.records:
            yield from self._plain_records(header, records)

    def _plain_records(self, header: BatchHeader, records: list[Record]) -> Iterator[RecordFound]:
        """The common case: nothing in the records is decoded."""
        shown = records if self._rows_left is None else records[: max(0, self._rows_left)]
        timestamp_type = header.timestamp_type
        for number, timestamp, key, value, headers in shown:
            offset = Offset(number)
            sequence = _sequence(header, offset)
            yield RecordFound(
                offset, timestamp_type, timestamp, sequence, key, value, headers, is_control=False
            )
        if self._rows_left is not None:
            self._rows_left -= len(shown)

    def _record(self, step: Step, record: Record, index: int) -> Iterator[Item]:
        header = step.header
        decoded = self._decoder.decode(record.key, record.value, is_control=header.is_control)
        if header.is_control:
            self.totals.control_types.append(decoded.control_type)
        if self._options.records and not (self._rows_left is not None and self._rows_left <= 0):
            self._count_row()
            offset = Offset(record.offset)
            yield RecordFound(
                offset=offset,
                timestamp_type=header.timestamp_type,
                timestamp=record.timestamp,
                sequence=_sequence(header, offset),
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
                is_control=header.is_control,
                decoded_key=decoded.key,
                decoded_value=decoded.value,
            )
        if decoded.complaint:
            yield self._problem(
                step.position,
                f"record {index} of the batch, offset {record.offset}: {decoded.complaint}",
                "the checksum matches, so it was written like this; check --decode and the writer",
            )

    def _check_snapshot_frame(self) -> Iterator[Problem]:
        found = self.totals.control_types
        if not found or found[0] != RecordDecoder.SNAPSHOT_HEADER:
            yield self._problem(
                0, "the snapshot does not begin with its header", "delete it; take an older one"
            )
        if not found or found[-1] != RecordDecoder.SNAPSHOT_FOOTER:
            yield self._problem(
                self._file.size_bytes,
                "the snapshot does not end with its footer: it is not complete",
                "delete it; an older one and the log have the same records",
            )


def _sequence(header: BatchHeader, offset: Offset) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) & INT32_MAX


def _offsets_complaint(header: BatchHeader, records: list[Record]) -> str | None:
    previous = header.base_offset - 1
    for record in records:
        if not previous < record.offset <= header.last_offset:
            return (
                f"record offset {record.offset} in a batch from {header.base_offset} to "
                f"{header.last_offset}, after {previous}"
            )
        previous = record.offset
    if len(records) != header.record_count:
        return f"{len(records)} records where the header says {header.record_count}"
    return None


def batch_found(step: Step) -> BatchFound:
    header = step.header
    return BatchFound(
        position=step.position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp,
        magic=header.magic,
        compression=header.compression,
        crc=header.crc,
        crc_is_valid=step.crc_is_valid,
    )
