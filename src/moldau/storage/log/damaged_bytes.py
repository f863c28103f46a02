"""Damaged bytes between sound batches of a segment. They stay in the file: readers get everything
before and after them, and an error only when a read would begin inside them.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from moldau.protocol.records.batches import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    KNOWN_ATTRIBUTES,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
)
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.record_loops import BAD_OFFSETS, scan_batches
from moldau.protocol.records.scanned_batch import BASE_OFFSET, LAST_OFFSET, POSITION, ScannedBatch
from moldau.storage.disk.filesystem import File
from moldau.storage.segment.scan import STRAY_OFFSETS, SegmentScan
from moldau.types import OFFSET_MAX, Offset

_SEARCH_BYTES = 1 << 20
_HEADER = struct.Struct(">qi4xbIhi30xi")
OFFSETS_MAX = 2**31
"""No segment has more offsets."""


class _Header(NamedTuple):
    """The fields of `_HEADER`."""

    base_offset: Offset
    length: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    record_count: int


class DamagedBytes(NamedTuple):
    """The bytes from one sound batch, or the start of the file, to the next one, or the end."""

    position: int
    end: int
    first_offset: Offset
    next_offset: Offset
    """Base offset of the following batch."""
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} at position {self.position}"


class TolerantScan:
    """As `SegmentScan` with checksums, but it continues after damage at an offset before
    `promised_end`; after other damage it ends. `damaged` lists the bytes that were skipped.
    """

    def __init__(
        self,
        file: File,
        start: int,
        end: int,
        *,
        offsets: range,
        promised_end: Offset = OFFSET_MAX,
    ) -> None:
        self.valid_end = start
        self.problem: str | None = None
        self.next_offset = Offset(offsets.start)
        self._offset_limit = offsets.stop
        self.damaged: list[DamagedBytes] = []
        self._file = file
        self._end = end
        self._promised_end = promised_end
        # The last batch is held back: the next one may show that its offset is wrong.
        self._held: ScannedBatch | None = None
        self._held_from = Offset(offsets.start)
        """The offset after the batch before the held one."""

    def __iter__(self) -> Iterator[list[ScannedBatch]]:
        position, self.problem = self.valid_end, None
        while True:
            offsets = range(self.next_offset, self._offset_limit)
            scan = SegmentScan(self._file, position, self._end, verify_crc=True, offsets=offsets)
            for headers in scan:
                yield self._hold_back(headers)
            self.valid_end, self.problem = scan.valid_end, scan.problem
            if self.problem is None:
                break
            if self.problem == BAD_OFFSETS:
                self._drop_held_if_wrong()
            if self.next_offset >= self._promised_end:
                break
            position = self._skip_damaged(self.problem)
            if position == self._end:
                break
        if self._held is not None:
            yield [self._held]
            self._held = None

    def _hold_back(self, headers: list[ScannedBatch]) -> list[ScannedBatch]:
        found = headers if self._held is None else [self._held, *headers]
        if len(found) > 1:
            self._held_from = Offset(found[-2][LAST_OFFSET] + 1)
        self._held = found.pop()
        self.next_offset = Offset(self._held[LAST_OFFSET] + 1)
        return found

    def _drop_held_if_wrong(self) -> None:
        """Drops the held batch if its own offset is the wrong one."""
        held = self._held
        if held is not None and self._has_wrong_offset(held, self.valid_end):
            self.valid_end, self.next_offset, self._held = held[POSITION], self._held_from, None

    def _skip_damaged(self, problem: str) -> int:
        """The position of the next batch that may be sound; the end of the file if there
        is none.
        """
        start = self.valid_end
        if problem in {BAD_OFFSETS, STRAY_OFFSETS}:
            # Only its offset is wrong. Its content must not be searched: it might look like
            # batches.
            length = int.from_bytes(self._file.read(start + 8, 4), "big", signed=True)
            return self._leave_out(start, start + LOG_OVERHEAD + length, problem)
        return self._leave_out(start, self._following(start), problem)

    def _leave_out(self, start: int, end: int, problem: str) -> int:
        first_offset = self.next_offset
        next_offset = min(first_offset + OFFSETS_MAX, self._offset_limit)
        if end < self._end:
            next_offset = int.from_bytes(self._file.read(end, 8), "big", signed=True)
        else:
            self.valid_end, self.problem = end, None
        if self.damaged and self.damaged[-1].end == start:
            start, _, first_offset, _, problem = self.damaged.pop()
        self.damaged.append(
            DamagedBytes(start, end, Offset(first_offset), Offset(next_offset), problem)
        )
        return end

    def _has_wrong_offset(self, held: ScannedBatch, position: int) -> bool:
        """Checksums do not cover offsets. If the offset of a batch is corrupted upwards, the next
        batch seems to come before it.
        """
        if held[BASE_OFFSET] == self._held_from:
            return False
        return self._sound_at(position, self._held_from) is not None

    def _following(self, start: int) -> int:
        claimed = self._claimed_end(start)
        if claimed is not None:
            return claimed
        return self._search(start + 1)

    def _claimed_end(self, start: int) -> int | None:
        """The end that the damaged batch claims, if the bytes there continue the log."""
        header = self._header(start)
        if header is None or header.base_offset != self.next_offset:
            return None
        end = start + LOG_OVERHEAD + header.length
        if end == self._end:
            return end
        following = self._sound_at(end, self.next_offset + 1) if start < end < self._end else None
        return end if following == header.base_offset + header.last_offset_delta + 1 else None

    def _header(self, position: int) -> _Header | None:
        if position + BATCH_HEADER_SIZE > self._end:
            return None
        content = self._file.read(position, BATCH_HEADER_SIZE)
        if len(content) != BATCH_HEADER_SIZE:
            return None
        return _Header(*_HEADER.unpack(content))

    def _sound_at(self, position: int, offset_min: int) -> int | None:
        """The base offset of the sound batch that begins at the position."""
        header = self._header(position)
        if header is None or not self._is_likely(header, position, offset_min):
            return None
        batch = self._file.read(position, LOG_OVERHEAD + header.length)
        found, _, _ = scan_batches(batch, 0, len(batch), True)
        return header.base_offset if found else None

    def _is_likely(self, header: _Header, position: int, offset_min: int) -> bool:
        """Cheap and strict, so that garbage rarely costs a checksum over the length that
        it claims.
        """
        return (
            header.magic == MAGIC
            and offset_min <= header.base_offset < offset_min + OFFSETS_MAX
            and header.base_offset + header.last_offset_delta < self._offset_limit
            and BATCH_LENGTH_MIN <= header.length <= self._end - position - LOG_OVERHEAD
            and header.attributes & ~KNOWN_ATTRIBUTES == 0
            and 0 <= header.record_count <= header.last_offset_delta + 1
        )

    def _search(self, position: int) -> int:
        """The first position that is followed by a sound batch."""
        offset_min = self.next_offset
        while position + BATCH_HEADER_SIZE <= self._end:
            # Pieces overlap by a header, so that no batch is missed at a seam.
            piece = self._file.read(position, min(_SEARCH_BYTES, self._end - position))
            last = len(piece) - BATCH_HEADER_SIZE
            at = piece.find(MAGIC, MAGIC_OFFSET) - MAGIC_OFFSET
            while 0 <= at <= last:
                header = _Header(*_HEADER.unpack_from(piece, at))
                if (
                    self._is_likely(header, position + at, offset_min)
                    and self._sound_at(position + at, offset_min) is not None
                ):
                    return position + at
                at = piece.find(MAGIC, at + MAGIC_OFFSET + 1) - MAGIC_OFFSET
            if last < 0:
                break
            position += last + 1
        return self._end


def is_cut(file: File, size: int, damaged: DamagedBytes) -> bool:
    """Whether the file ends inside the damage, rather than the bytes being wrong."""
    content = file.read(damaged.position, size - damaged.position)
    if len(content) < BATCH_HEADER_SIZE:
        return True
    _, length, magic, checksum, *_ = _HEADER.unpack_from(content)
    if LOG_OVERHEAD + length <= len(content) or magic != MAGIC:
        return False
    # If only the length is wrong, all of the batch is there.
    return bool(crc32c(content[ATTRIBUTES_OFFSET:]) != checksum)


def find_damage(file: File, size: int, offsets: range) -> tuple[DamagedBytes, ...]:
    """All damage in a segment's file whose batches have `offsets`."""
    scan = TolerantScan(file, 0, size, offsets=offsets)
    for _ in scan:
        pass
    return tuple(scan.damaged)
