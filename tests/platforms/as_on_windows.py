"""`pytest -p platforms.as_on_windows`: what Windows does not have is taken away before anything is
imported: modules, calls, signals, and signal handlers of event loops.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import psutil  # noqa: F401 - a tool of the tests; its Linux half needs what goes now

MODULES = ("fcntl", "resource", "uvloop", "termios", "tty", "pwd", "grp")
CALLS = (
    "fdatasync", "pwritev", "preadv", "pread", "pwrite", "O_DIRECTORY", "O_CLOEXEC", "statvfs",
    "fork", "register_at_fork",
)  # fmt: skip
SIGNALS = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")


def _no_signal_handler(*_: Any) -> None:
    raise NotImplementedError


for _name in MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]
for _name in CALLS:
    if hasattr(os, _name):
        delattr(os, _name)
for _name in SIGNALS:
    delattr(signal, _name)
asyncio.SelectorEventLoop.add_signal_handler = _no_signal_handler  # type: ignore[method-assign,assignment]
