"""`pytest -p platforms.as_on_windows`: removes what Windows lacks before anything is imported:
modules, calls, signals, signal handlers of event loops, and opened directories.
"""

import asyncio
import errno
import os
import shutil
import signal
import sys
from typing import Any

import psutil  # noqa: F401 - a tool of the tests; its Linux part needs the removed modules

MODULES = ("fcntl", "resource", "uvloop", "termios", "tty", "pwd", "grp")
CALLS = (
    "fdatasync", "pwritev", "preadv", "pread", "pwrite", "O_DIRECTORY", "O_CLOEXEC", "statvfs",
    "fork", "register_at_fork",
)  # fmt: skip
SIGNALS = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")


def _no_signal_handler(*_: Any) -> None:
    raise NotImplementedError


_open = os.open


def _open_no_directory(path: Any, flags: int, *others: Any, **more: Any) -> int:
    if os.path.isdir(path):  # noqa: PTH112 - pathlib may be the caller
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return _open(path, flags, *others, **more)


for _name in MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]
for _name in CALLS:
    if hasattr(os, _name):
        delattr(os, _name)
os.open = _open_no_directory
# shutil has detected at import that Linux can remove a tree through open directories.
shutil._use_fd_functions = False  # type: ignore[attr-defined]
for _name in SIGNALS:
    delattr(signal, _name)
asyncio.SelectorEventLoop.add_signal_handler = _no_signal_handler  # type: ignore[method-assign,assignment]
