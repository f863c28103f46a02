"""`pytest -p platforms.as_on_macos`: the calls that macOS does not have are taken away before
anything is imported, and its own way to sync is put in their place.
"""

import fcntl
import os
from typing import Any

F_FULLFSYNC = 51

_fcntl = fcntl.fcntl
full_syncs = 0


def _with_full_sync(fd: Any, command: int, argument: Any = 0) -> Any:
    global full_syncs  # noqa: PLW0603 - counted for the test that looks
    if command == F_FULLFSYNC:
        full_syncs += 1
        os.fsync(fd)
        return 0
    return _fcntl(fd, command, argument)


for _name in ("fdatasync", "pwritev", "preadv", "posix_fadvise", "posix_fallocate", "RWF_NOWAIT"):
    if hasattr(os, _name):
        delattr(os, _name)
fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
fcntl.fcntl = _with_full_sync
