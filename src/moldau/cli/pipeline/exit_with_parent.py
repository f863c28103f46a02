"""A process that must not outlive the one that started it."""

import os
import sys
import threading

_STATUS = 1


def end_with_stdin() -> None:
    """At once when stdin is closed, as it is when the parent is gone, whatever ended that."""
    threading.Thread(target=_wait_and_end, name="stdin", daemon=True).start()


def _wait_and_end() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        """Whatever is said is not for us."""
    os._exit(_STATUS)
