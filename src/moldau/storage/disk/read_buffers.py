"""Buffers that reads fill and responses are sent from. A transport may hold a response for as long
as its client takes to read it, so a buffer is reused only when no view of it is left.

Large buffers begin at a page, and bytes have the same position in their page of the buffer as in
their page of the file: a copy between addresses that differ by a few bytes takes up to seven times
as long (AMD's `rep movsb`).
"""

import mmap
import sys
from collections import deque
from collections.abc import Iterator

_PAGE_BYTES = 4096
_SMALL_BYTES = 16 * 1024
"""Up to this size a new buffer costs less than the search for a free one."""
_KEPT_EACH_BYTES_MAX = 2 << 20
_KEPT_BYTES_MAX = 16 << 20
_LOOKED_AT_MAX = 4


def _references(kept: deque[mmap.mmap]) -> int:
    return sys.getrefcount(kept[0])


# The reference count of a buffer that only the list holds differs between Python versions.
_REFERENCES_IF_FREE = _references(deque([mmap.mmap(-1, 1)]))


class ReadBuffers:
    """One thread at a time takes buffers; any thread may release them."""

    def __init__(self) -> None:
        # By size, each in order of last use: the first is the most likely to be free.
        self._kept: dict[int, deque[mmap.mmap]] = {}
        self.kept_bytes = 0

    def take(self, size: int, position: int) -> memoryview:
        """Room for `size` bytes that lie at `position` in their file."""
        if size <= _SMALL_BYTES:
            return memoryview(bytearray(size))
        shift = position % _PAGE_BYTES
        whole = _rounded_up(size + shift)
        if whole > _KEPT_EACH_BYTES_MAX:
            return memoryview(mmap.mmap(-1, size + shift))[shift:]
        return memoryview(self._free(whole))[shift : shift + size]

    def _free(self, whole: int) -> mmap.mmap:
        kept = self._kept.get(whole)
        if kept is None:
            kept = self._kept[whole] = deque()
        for _ in range(min(len(kept), _LOOKED_AT_MAX)):
            is_free = _references(kept) == _REFERENCES_IF_FREE
            # Moved to the end, even if it is held for long: otherwise each search would start with
            # it.
            kept.rotate(-1)
            if is_free:
                return kept[-1]
        buffer = mmap.mmap(-1, whole)
        if self.kept_bytes + whole <= _KEPT_BYTES_MAX:
            self.kept_bytes += whole
            kept.append(buffer)
        return buffer

    def sizes(self) -> Iterator[int]:
        """Sizes of the buffers that are kept."""
        return (len(buffer) for kept in self._kept.values() for buffer in kept)


def _rounded_up(size: int) -> int:
    """Rounds up to a power of two, or to one and a half of one: few sizes, little waste."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power
