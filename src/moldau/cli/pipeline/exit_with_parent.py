"""Ends a process when its parent is gone."""

import os
import sys
import threading

_STATUS = 1


def end_with_stdin() -> None:
    """Ends this process when stdin is closed, which the system does when the parent ends."""
    threading.Thread(target=_wait_and_end, name="stdin", daemon=True).start()


def _wait_and_end() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        """The content does not matter, only the end of the input."""
    os._exit(_STATUS)
