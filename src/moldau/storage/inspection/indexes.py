"""Inspects a segment's indexes against their log. Entries and batches are both in order, so one
pass over the log's headers checks every entry; only the current entry is held in memory.
"""

import struct
from collections.abc import Iterator
from contextlib import ExitStack

from moldau.storage.inspection.batches import Step, walk_batches
from moldau.storage.inspection.items import (
    REBUILD_ALL,
    AbortedTransactionFound,
    Item,
    OffsetIndexEntryFound,
    Problem,
    Remark,
    TimeIndexEntryFound,
)
from moldau.storage.inspection.names import FileName, sibling
from moldau.storage.inspection.options import InspectionOptions
from moldau.storage.inspection.source import WINDOW_BYTES, InspectedFile
from moldau.types import FIRST_OFFSET, Offset

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_REBUILD = "delete the index; it is rebuilt from the log at the next start"
_RECOVER = f"read_committed readers may see aborted records; {REBUILD_ALL}"
_ABORTED_VERSION = 0


class BatchCursor:
    """The batches of the log that belongs to an index, requested in ascending order."""

    def __init__(self, file: InspectedFile, base_offset: Offset) -> None:
        self._steps = walk_batches(file, verify_crc=False, base_offset=base_offset)
        self._step: Step | None = None
        self._advance()

    def _advance(self) -> None:
        self._step = next((step for step in self._steps if isinstance(step, Step)), None)

    def at_position(self, position: int) -> Step | None:
        """The batch that begins at the position."""
        while self._step is not None and self._step.position < position:
            self._advance()
        return self._step if self._step and self._step.position == position else None

    def with_offset(self, offset: Offset) -> Step | None:
        """The batch that contains the offset."""
        while self._step is not None and self._step.header.last_offset < offset:
            self._advance()
        return self._step if self._step and self._step.header.base_offset <= offset else None


class IndexInspection:
    """The part that all kinds of index share: entries of one size, their log, a tail of zeros."""

    def __init__(self, file: InspectedFile, name: FileName, options: InspectionOptions) -> None:
        self.entries = 0
        self._file = file
        self._path = file.path
        self._base_offset = name.base_offset or FIRST_OFFSET
        self._options = options

    def offset_index(self) -> Iterator[Item]:
        with ExitStack() as stack:
            cursor = self._cursor(stack)
            if cursor is None:
                yield self._orphan()
            previous = (self._base_offset - 1, -1)
            for position, (relative, target) in self._read(_OFFSET_ENTRY):
                offset = Offset(self._base_offset + relative)
                yield OffsetIndexEntryFound(offset, target)
                complaint = None
                if relative < 0 or target < 0:
                    complaint = f"entry {offset} -> {target} is negative"
                elif offset <= previous[0] or target <= previous[1]:
                    complaint = (
                        f"entry {offset} -> {target} does not follow {previous[0]} -> {previous[1]}"
                    )
                elif cursor is not None:
                    complaint = _offset_complaint(offset, target, cursor.at_position(target))
                if complaint:
                    yield Problem(self._path, position, complaint, _REBUILD)
                else:
                    previous = (offset, target)
            yield from self._tail(_OFFSET_ENTRY.size)

    def time_index(self) -> Iterator[Item]:
        with ExitStack() as stack:
            cursor = self._cursor(stack)
            if cursor is None:
                yield self._orphan()
            previous = (-1, self._base_offset - 1)
            for position, (timestamp, relative) in self._read(_TIME_ENTRY):
                offset = Offset(self._base_offset + relative)
                yield TimeIndexEntryFound(timestamp, offset)
                complaint = None
                if relative < 0:
                    complaint = f"entry {timestamp} -> {offset} is before the segment's base"
                elif timestamp <= previous[0] or offset <= previous[1]:
                    complaint = _order_complaint((timestamp, offset), previous)
                elif cursor is not None:
                    complaint = _time_complaint(timestamp, offset, cursor.with_offset(offset))
                if complaint:
                    yield Problem(self._path, position, complaint, _REBUILD)
                else:
                    previous = (timestamp, offset)
            yield from self._tail(_TIME_ENTRY.size)

    def transaction_index(self) -> Iterator[Item]:
        with ExitStack() as stack:
            cursor = self._cursor(stack)
            if cursor is None:
                yield self._orphan()
            wrong_starts = self._wrong_transaction_starts()
            previous = Offset(self._base_offset - 1)
            for position, fields in self._read(_ABORTED_ENTRY):
                version, producer_id, first, last, stable = fields
                entry = AbortedTransactionFound(
                    version, producer_id, Offset(first), Offset(last), Offset(stable)
                )
                yield entry
                complaint = _aborted_complaint(entry, previous)
                if complaint is None and cursor is not None:
                    complaint = _marker_complaint(entry, cursor.with_offset(entry.last_offset))
                if complaint is None and (entry.first_offset, entry.producer_id) in wrong_starts:
                    complaint = (
                        f"no batch of producer {entry.producer_id} that begins a transaction "
                        f"is at offset {entry.first_offset}"
                    )
                if complaint:
                    yield Problem(self._path, position, complaint, _RECOVER)
                else:
                    previous = entry.last_offset
            yield from self._tail(_ABORTED_ENTRY.size)

    def _wrong_transaction_starts(self) -> set[tuple[int, int]]:
        """(first offset, producer) of entries whose first batch does not match the entry, if that
        batch is in this segment and has survived compaction. Starts are not in order, so this needs
        a pass of its own.
        """
        with ExitStack() as stack:
            cursor = self._cursor(stack)
            if cursor is None:
                return set()
            starts = sorted({(fields[2], fields[1]) for _, fields in self._read(_ABORTED_ENTRY)})
            self.entries = 0
            wrong_starts = set()
            for first_offset, producer_id in starts:
                step = cursor.with_offset(Offset(first_offset))
                if step is not None and not (
                    step.header.base_offset == first_offset
                    and step.header.producer_id == producer_id
                    and step.header.is_transactional
                    and not step.header.is_control
                ):
                    wrong_starts.add((first_offset, producer_id))
            return wrong_starts

    def _cursor(self, stack: ExitStack) -> BatchCursor | None:
        log = sibling(self._options.filesystem, self._path, ".log")
        if not self._options.filesystem.exists(log):
            return None
        file = stack.enter_context(InspectedFile(self._options.filesystem, log))
        return BatchCursor(file, self._base_offset)

    def _orphan(self) -> Problem:
        return Problem(
            self._path,
            None,
            "the log of this index is missing",
            "delete it: the next start would remove it anyway",
        )

    def _read(self, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(position, fields) up to the zeros that Kafka allocates ahead."""
        size = self._file.size_bytes // entry.size * entry.size
        step = WINDOW_BYTES // entry.size * entry.size
        for start in range(0, size, step):
            piece = self._file.read(start, min(step, size - start))
            for index, fields in enumerate(entry.iter_unpack(piece)):
                position = start + index * entry.size
                if (
                    not any(fields)
                    and entry is not _ABORTED_ENTRY
                    and self._ends_in_zeros(position)
                ):
                    return
                if self._options.rows_max is not None and self.entries >= self._options.rows_max:
                    return
                self.entries += 1
                yield position, fields

    def _ends_in_zeros(self, position: int) -> bool:
        while piece := self._file.read(position, WINDOW_BYTES):
            if piece.count(0) != len(piece):
                return False
            position += len(piece)
        return True

    def _tail(self, entry_bytes: int) -> Iterator[Item]:
        rows_max = self._options.rows_max
        position = self.entries * entry_bytes
        if rows_max is not None and self.entries >= rows_max:
            yield Remark(self._path, position, "stopped here, as requested")
            return
        left = self._file.size_bytes - position
        if left and self._ends_in_zeros(position):
            yield Remark(
                self._path,
                position,
                f"{left} zero bytes at the end are allocated ahead: normal while a broker runs "
                "and after an unclean stop",
            )
        elif left:
            yield Problem(
                self._path,
                position,
                f"{left} bytes at the end are less than an entry ({entry_bytes} bytes)",
                _REBUILD,
            )


def _order_complaint(entry: tuple[int, int], previous: tuple[int, int]) -> str:
    return f"entry {entry[0]} -> {entry[1]} does not follow {previous[0]} -> {previous[1]}"


def _offset_complaint(offset: Offset, target: int, step: Step | None) -> str | None:
    if step is None:
        return f"entry {offset} -> {target}: no batch of the log begins at {target}"
    if not step.header.base_offset <= offset <= step.header.last_offset:
        return (
            f"entry {offset} -> {target}: the batch there holds offsets "
            f"{step.header.base_offset} to {step.header.last_offset}"
        )
    return None


def _time_complaint(timestamp: int, offset: Offset, step: Step | None) -> str | None:
    if step is None:
        return f"entry {timestamp} -> {offset}: no batch of the log holds offset {offset}"
    if step.header.max_timestamp != timestamp:
        return (
            f"entry {timestamp} -> {offset}: the batch with that offset has "
            f"the largest timestamp {step.header.max_timestamp}"
        )
    return None


def _aborted_complaint(entry: AbortedTransactionFound, previous_offset: Offset) -> str | None:
    if entry.version != _ABORTED_VERSION:
        return f"unknown version {entry.version}"
    if not 0 <= entry.first_offset <= entry.last_offset:
        return f"a transaction from {entry.first_offset} to {entry.last_offset}"
    if entry.last_offset <= previous_offset:
        return f"abort at {entry.last_offset} does not follow {previous_offset}"
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        return f"last stable offset {entry.last_stable_offset} for an abort at {entry.last_offset}"
    return None


def _marker_complaint(entry: AbortedTransactionFound, step: Step | None) -> str | None:
    if step is None:
        return f"the log has no batch with the abort marker's offset {entry.last_offset}"
    if not step.header.is_control or step.header.producer_id != entry.producer_id:
        return (
            f"offset {entry.last_offset} of the log is not an abort marker of "
            f"producer {entry.producer_id}"
        )
    return None
