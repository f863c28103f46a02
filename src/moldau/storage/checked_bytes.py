"""Which bytes of a segment's file are known to be sound. What was there when the file was opened is
checked when it is first read; what was written since was checked before.
"""

from pathlib import Path

from moldau.protocol.record_loops import scan_batches
from moldau.storage.segment_walk import CorruptSegmentError


class CheckedBytes:
    """Positions are those of batches. One stretch of checked bytes is remembered: readers go
    forward, and checking a batch twice costs little.
    """

    __slots__ = ("_checked_end", "_checked_start", "found_bytes")

    def __init__(self, found_bytes: int) -> None:
        self.found_bytes = found_bytes
        self._checked_start = self._checked_end = 0

    def trust_all(self) -> None:
        """A scan has checked every byte, or we wrote them all."""
        self.found_bytes = 0

    def cut(self, size: int) -> None:
        self.found_bytes = min(self.found_bytes, size)
        self._checked_start = min(self._checked_start, size)
        self._checked_end = min(self._checked_end, size)

    def holds(self, start: int, end: int) -> bool:
        """Whether all of it is known to be sound."""
        end = min(end, self.found_bytes)
        return end <= start or self._checked_start <= start <= end <= self._checked_end

    def check(self, path: Path, content: memoryview, start: int) -> None:
        """`content` is what the file holds from `start` on."""
        end = min(start + len(content), self.found_bytes)
        follows = self._checked_start <= start <= self._checked_end
        if follows and end <= self._checked_end:
            return
        first = self._checked_end if follows else start
        _, valid_end, problem = scan_batches(content, first - start, end - start, True)
        if problem is not None or valid_end != end - start:
            what = problem or "no whole batch"
            raise CorruptSegmentError(path, f"{what} at position {start + valid_end}")
        self.note(start, end)

    def unchecked_end(self, position: int) -> int:
        """Bytes from `position` up to there are not known to be sound."""
        if self._checked_start <= position <= self._checked_end == self.found_bytes:
            return position
        return self.found_bytes

    def note(self, start: int, end: int) -> None:
        """They are sound."""
        end = min(end, self.found_bytes)
        if not self._checked_start <= start <= self._checked_end:
            self._checked_start, self._checked_end = start, start
        self._checked_end = max(self._checked_end, end)
