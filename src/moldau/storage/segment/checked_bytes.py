"""Tracks which bytes of a segment's file are known to be sound. Bytes from before the file was
opened are checked when they are first read; later bytes were checked when they were written. Bytes
that the page cache had dropped are checked again when they come back from the disk.
"""

from pathlib import Path
from typing import NamedTuple

from moldau.protocol.records.record_loops import BAD_OFFSETS, INCOMPLETE, scan_batches
from moldau.protocol.records.scanned_batch import BASE_OFFSET, LAST_OFFSET, POSITION, ScannedBatch
from moldau.storage.segment.scan import PIECE_BYTES, STRAY_OFFSETS
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import Buffer, Offset

OFFSET_BYTES = 8
"""The bytes of a batch's header that are needed to check the offset of the batch before it."""


class Bounds(NamedTuple):
    """Limits for the offsets of a segment's batches, which their checksums do not cover."""

    first_offset: Offset
    offset_limit: Offset
    """The next segment begins at this offset or later."""
    end: int
    """The position where they end: known damage, or the end of the file."""
    end_offset: Offset
    """Batches before the position `end` end before this offset."""


def sound_end(content: Buffer, start: int, end: int, bounds: Bounds) -> tuple[int, str | None]:
    """The end of the sound batches from `start` on, and the problem of the next one before `end`.
    `content` holds the file's bytes from `start` on. A sound batch must also end before the next
    one begins: only that reveals a corrupted offset.
    """
    first_offset, last, valid_end, problem = _scanned(content, start, end)
    if last is None:
        return start, problem
    last_position, last_offset = last[POSITION], last[LAST_OFFSET]
    if first_offset < bounds.first_offset or last_offset >= bounds.offset_limit:
        return start, STRAY_OFFSETS
    next_offset: Offset | None = bounds.end_offset
    if valid_end < bounds.end:
        next_offset = _offset_at(content, valid_end - start)
    if next_offset is None:
        return last_position, problem or INCOMPLETE
    return (valid_end, problem) if last_offset < next_offset else (last_position, BAD_OFFSETS)


def _scanned(
    content: Buffer, start: int, end: int
) -> tuple[int, ScannedBatch | None, int, str | None]:
    """The first offset, the last sound batch, its end, and the problem after it. Works in pieces: a
    scan holds the interpreter lock.
    """
    first_offset, last = 0, None
    valid_end, problem = start, None
    size, piece_bytes = end - start, PIECE_BYTES
    while valid_end < end and problem is None:
        position = valid_end - start
        piece_end = min(position + piece_bytes, size)
        headers, valid_end, problem = scan_batches(content, position, piece_end, True, start)
        if problem == INCOMPLETE and piece_end < size:
            # Cut by the end of the piece or, if no batch was whole, a batch larger than the piece.
            problem = None
            piece_bytes = PIECE_BYTES if headers else 2 * piece_bytes
        if headers:
            if last is None:
                first_offset = headers[0][BASE_OFFSET]
            elif headers[0][BASE_OFFSET] <= last[LAST_OFFSET]:
                return first_offset, last, headers[0][POSITION], BAD_OFFSETS
            last = headers[-1]
    return first_offset, last, valid_end, problem


def _offset_at(content: Buffer, position: int) -> Offset | None:
    found = bytes(content[position : position + OFFSET_BYTES])
    if len(found) != OFFSET_BYTES:
        return None
    return Offset(int.from_bytes(found, "big", signed=True))


class CheckedBytes:
    """Positions are those of batches. Only one stretch of checked bytes is remembered: readers move
    forward, and checking a batch twice is cheap.
    """

    __slots__ = ("_checked_end", "_checked_start", "found_bytes")

    def __init__(self, found_bytes: int) -> None:
        self.found_bytes = found_bytes
        self._checked_start = self._checked_end = 0

    def doubt_all(self, size: int) -> None:
        """Some of the bytes were read from the disk again."""
        self.found_bytes = size
        self._checked_start = self._checked_end = 0

    def cut(self, size: int) -> None:
        self.found_bytes = min(self.found_bytes, size)
        self._checked_start = min(self._checked_start, size)
        self._checked_end = min(self._checked_end, size)

    def is_checked(self, start: int, end: int) -> bool:
        end = min(end, self.found_bytes)
        return start >= end or self._checked_start <= start <= end <= self._checked_end

    def check(self, path: Path, content: memoryview, start: int, end: int, bounds: Bounds) -> None:
        """`content` holds the file's bytes from `start` on: batches up to `end` and, unless the
        file ends there, at least the next batch's offset.
        """
        end = min(end, self.found_bytes)
        follows = self._checked_start <= start <= self._checked_end
        first = self._checked_end if follows else start
        valid_end, problem = sound_end(content[first - start :], first, end, bounds)
        if problem is not None or valid_end != end:
            raise CorruptSegmentError(path, f"{problem or INCOMPLETE} at position {valid_end}")
        self.note(start, end)

    def note(self, start: int, end: int) -> None:
        """Marks the bytes as sound."""
        end = min(end, self.found_bytes)
        if not self._checked_start <= start <= self._checked_end:
            self._checked_start, self._checked_end = start, start
        self._checked_end = max(self._checked_end, end)
