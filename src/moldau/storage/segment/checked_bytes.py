"""Which bytes of a segment's file are known to be sound. What was there when the file was opened is
checked when it is first read; what was written since was checked before. Bytes that the page cache
had dropped are checked again when they come back from the disk.
"""

from pathlib import Path
from typing import NamedTuple

from moldau.protocol.records.record_loops import BAD_OFFSETS, INCOMPLETE, scan_batches
from moldau.protocol.records.scanned_batch import BASE_OFFSET, LAST_OFFSET, POSITION, ScannedBatch
from moldau.storage.segment.scan import PIECE_BYTES, STRAY_OFFSETS
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import Buffer, Offset

OFFSET_BYTES = 8
"""What has to be known of a batch to compare the one before it."""


class Bounds(NamedTuple):
    """What batches of a segment have to keep to: their offsets are outside of their checksums."""

    first_offset: Offset
    offset_limit: int
    """The next segment begins there, or behind it."""
    end: int
    """The position where they end: that of damage which is known, or the end of the file."""
    end_offset: Offset
    """Batches in front of `end` end before it."""


def sound_end(content: Buffer, start: int, end: int, bounds: Bounds) -> tuple[int, str | None]:
    """How far the batches from `start` on are sound, and what is wrong with those up to `end`.
    `content` is what the file holds from `start` on. One that seems to be sound must also end
    before the next one begins: if its offset has leapt, nothing else tells.
    """
    first_offset, last, valid_end, problem = _scanned(content, start, end)
    if last is None:
        return start, problem
    last_position, last_offset = last[POSITION], last[LAST_OFFSET]
    if first_offset < bounds.first_offset or last_offset >= bounds.offset_limit:
        return start, STRAY_OFFSETS
    next_offset: int | None = bounds.end_offset
    if valid_end < bounds.end:
        next_offset = _offset_at(content, valid_end - start)
    if next_offset is None:
        return last_position, problem or INCOMPLETE
    return (valid_end, problem) if last_offset < next_offset else (last_position, BAD_OFFSETS)


def _scanned(
    content: Buffer, start: int, end: int
) -> tuple[int, ScannedBatch | None, int, str | None]:
    """The first offset, the last sound batch, where it ends and what is wrong behind it. In pieces:
    a thread that scans one keeps the interpreter to itself.
    """
    first_offset, last = 0, None
    valid_end, problem = start, None
    size, piece_bytes = end - start, PIECE_BYTES
    while valid_end < end and problem is None:
        position = valid_end - start
        piece_end = min(position + piece_bytes, size)
        headers, valid_end, problem = scan_batches(content, position, piece_end, True, start)
        if problem == INCOMPLETE and piece_end < size:
            # Cut by the end of the piece; if nothing was whole, by a batch that is larger.
            problem = None
            piece_bytes = PIECE_BYTES if headers else 2 * piece_bytes
        if headers:
            if last is None:
                first_offset = headers[0][BASE_OFFSET]
            elif headers[0][BASE_OFFSET] <= last[LAST_OFFSET]:
                return first_offset, last, headers[0][POSITION], BAD_OFFSETS
            last = headers[-1]
    return first_offset, last, valid_end, problem


def _offset_at(content: Buffer, position: int) -> int | None:
    found = bytes(content[position : position + OFFSET_BYTES])
    return int.from_bytes(found, "big", signed=True) if len(found) == OFFSET_BYTES else None


class CheckedBytes:
    """Positions are those of batches. One stretch of checked bytes is remembered: readers go
    forward, and checking a batch twice costs little.
    """

    __slots__ = ("_checked_end", "_checked_start", "found_bytes")

    def __init__(self, found_bytes: int) -> None:
        self.found_bytes = found_bytes
        self._checked_start = self._checked_end = 0

    def doubt_all(self, size: int) -> None:
        """Some of it has come from the disk again."""
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
        """`content` is what the file holds from `start` on: batches up to `end` and, if the file
        goes on there, at least the next one's offset.
        """
        end = min(end, self.found_bytes)
        follows = self._checked_start <= start <= self._checked_end
        first = self._checked_end if follows else start
        valid_end, problem = sound_end(content[first - start :], first, end, bounds)
        if problem is not None or valid_end != end:
            raise CorruptSegmentError(path, f"{problem or INCOMPLETE} at position {valid_end}")
        self.note(start, end)

    def note(self, start: int, end: int) -> None:
        """They are sound."""
        end = min(end, self.found_bytes)
        if not self._checked_start <= start <= self._checked_end:
            self._checked_start, self._checked_end = start, start
        self._checked_end = max(self._checked_end, end)
