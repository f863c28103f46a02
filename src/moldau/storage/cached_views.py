"""Views of files that only the kernel reads, when a socket is written to: no copy of our own. They
are maps, and what cannot be read would be SIGBUS if this process looked; a call of the kernel fails
with an error instead. What a socket does not take at once is read, so a view is gone soon, and no
page stays counted as memory of the process.

Linux alone tells what is cached without reading it.
"""

import contextlib
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache

from moldau.types import Buffer

SIZE_MIN = 256 * 1024
"""From here on a copy costs more than the calls that save it."""
_SIZE_MAX = 16 << 20
_PAGE_BYTES = mmap.PAGESIZE


class CachedView(mmap.mmap):
    """Part of a file, with a descriptor of its own: it outlives the segment it was made from."""

    position: int
    size_bytes: int
    _fd: int

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self._fd)

    def read_from(self, start: int) -> bytes:
        """The rest. Raises EOFError if somebody has cut the file."""
        rest = os.pread(self._fd, self.size_bytes - start, self.position + start)
        if len(rest) < self.size_bytes - start:
            raise EOFError
        return rest


def cached_view(fd: int, position: int, size: int) -> memoryview | None:
    """None unless all of it is in the page cache, and this system can tell."""
    are_resident = _residency()
    if are_resident is None or not SIZE_MIN <= size <= _SIZE_MAX:
        return None
    shift = position % _PAGE_BYTES
    try:
        # Private and never written: ctypes wants to know where a buffer lies only if it could be.
        view = CachedView(fd, shift + size, access=mmap.ACCESS_COPY, offset=position - shift)
        if not are_resident(view):
            return None
        view._fd = os.dup(fd)
    except (OSError, ValueError):
        # There is no room for it, or the file was cut: reading tells.
        return None
    view.position, view.size_bytes = position, size
    return memoryview(view)[shift:].toreadonly()


def view_behind(chunk: Buffer) -> CachedView | None:
    """What `cached_view` made the chunk of, if it did."""
    if type(chunk) is memoryview:
        behind = chunk.obj
        if type(behind) is CachedView and len(chunk) == behind.size_bytes:
            return behind
    return None


@cache
def _residency() -> Callable[[mmap.mmap], bool] | None:
    """Whether all pages of a map can be had without the disk; asked when the first is needed."""
    if sys.platform != "linux":
        return None
    # Here, as importing it takes milliseconds of a start.
    import ctypes

    # With the interpreter held: to give it away would take longer than the call.
    mincore = ctypes.PyDLL(None).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    mincore.restype = ctypes.c_int
    pages = (ctypes.c_ubyte * (_SIZE_MAX // _PAGE_BYTES + 2))()

    def are_resident(view: mmap.mmap) -> bool:
        count = -(-len(view) // _PAGE_BYTES)
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        if mincore(start, len(view), ctypes.addressof(pages)) != 0:
            return False
        return bytes(pages)[:count].count(1) == count

    return are_resident
