"""`pytest -p platforms.as_on_macos`: the calls that macOS does not have are taken away before
anything is imported, and its own way to sync is put in their place. Processes that are started from
here get the same (`macos_children/sitecustomize.py`). PYTEST_DONT_REWRITE: workers of pytest-xdist
have it before pytest could.
"""

import fcntl
import os
from pathlib import Path
from typing import Any

F_FULLFSYNC = 51
FULL_SYNCS_FILE = "FULL_SYNCS_FILE"
"""Names a file that gets a line for each full sync: who did it, and of what."""
HERE = Path(__file__).parent

_fcntl = fcntl.fcntl
full_syncs = 0
refusal: int | None = None
"""The error of file systems that cannot do it."""


def _with_full_sync(fd: Any, command: int, argument: Any = 0) -> Any:
    global full_syncs  # noqa: PLW0603 - counted for the test that looks
    if command != F_FULLFSYNC:
        return _fcntl(fd, command, argument)
    if refusal is not None:
        raise OSError(refusal, os.strerror(refusal))
    os.fsync(fd)
    full_syncs += 1
    if file := os.environ.get(FULL_SYNCS_FILE):
        with Path(file).open("a") as out:
            out.write(f"{os.getpid()} {Path(f'/proc/self/fd/{fd}').readlink()}\n")
    return 0


for _name in ("fdatasync", "pwritev", "preadv", "posix_fadvise", "posix_fallocate", "RWF_NOWAIT"):
    if hasattr(os, _name):
        delattr(os, _name)
fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
fcntl.fcntl = _with_full_sync
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "macos_children"), str(HERE.parent)])
