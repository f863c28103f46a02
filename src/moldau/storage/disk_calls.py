"""The calls that make a write durable, and those that not every system has. Chosen once, at import:
Linux has fdatasync; on macOS fsync stops at the drive's cache, and only F_FULLFSYNC goes through.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Sequence

from moldau.types import Buffer

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
# File systems of the network do not know it; fsync is all they have.
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


sync_directory: Callable[[int], None] = os.fsync if _FULL_SYNC is None else _full_sync
"""Of a descriptor: creations, renames and removals in it are on the disk."""
sync_file: Callable[[int], None] = getattr(os, "fdatasync", sync_directory)
"""Of a descriptor: content and size are on the disk."""
write_buffers: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", _write_joined)
"""At an offset; how much was written."""
