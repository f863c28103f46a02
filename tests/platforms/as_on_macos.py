"""`pytest -p platforms.as_on_macos`: removes the calls that macOS lacks before anything is
imported, and replaces the sync with that of macOS. Processes started from here get the same
(`macos_children/sitecustomize.py`). PYTEST_DONT_REWRITE: workers of pytest-xdist import it before
pytest could rewrite it.
"""

import fcntl
import os
from pathlib import Path
from typing import Any

F_FULLFSYNC = 51
FULL_SYNCS_FILE = "FULL_SYNCS_FILE"
"""Names a file that gets a line for each full sync: the process and the path."""
HERE = Path(__file__).parent

_fcntl = fcntl.fcntl
full_syncs = 0
refusal: int | None = None
"""The error of file systems without a full sync."""


def _with_full_sync(fd: Any, command: int, argument: Any = 0) -> Any:
    global full_syncs  # noqa: PLW0603 - counted for a test
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
