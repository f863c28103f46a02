"""The system calls that make a write durable, and calls that exist on some systems only. They are
selected once, at import: Linux has fdatasync; on macOS fsync stops at the drive's cache, and only
F_FULLFSYNC goes through. Files other than logs use them too: syncs also work on Windows.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from moldau.platforms import HAS_LOCKS
from moldau.types import Buffer

_FULL_SYNC: int | None = None
if HAS_LOCKS:
    import fcntl

    _FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
# Network file systems lack it; fsync is all that they offer.
_UNKNOWN = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL})


def _full_sync(fd: int) -> None:
    assert _FULL_SYNC is not None
    try:
        fcntl.fcntl(fd, _FULL_SYNC)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        os.fsync(fd)


def _write_joined(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    return os.pwrite(fd, b"".join(buffers), offset)


def _read_joined(fd: int, targets: Sequence[memoryview], offset: int, _flags: int) -> int:
    content = os.pread(fd, len(targets[0]), offset)
    targets[0][: len(content)] = content
    return len(content)


sync_directory: Callable[[int], None] = os.fsync if _FULL_SYNC is None else _full_sync
"""Takes a descriptor. On return, creations, renames and removals in the directory are durable."""
sync_file: Callable[[int], None] = (
    getattr(os, "fdatasync", os.fsync) if _FULL_SYNC is None else _full_sync
)
"""Takes a descriptor. On return, content and size are durable."""
write_buffers: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", _write_joined)
"""Writes at an offset and returns the number of bytes written."""
read_into: Callable[[int, Sequence[memoryview], int, int], int] = getattr(
    os, "preadv", _read_joined
)
"""Fills one buffer from an offset on, with flags; returns the number of bytes read."""
CACHED_ONLY: int = getattr(os, "RWF_NOWAIT", 0)
"""The flag for a read that fails rather than waits for the disk; 0 where there is none."""


def sync_folder(path: Path) -> None:
    """As `sync_directory`, by name. Windows cannot open directories, and persists their entries
    automatically.
    """
    if hasattr(os, "O_DIRECTORY"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)
