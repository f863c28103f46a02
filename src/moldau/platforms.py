"""The capabilities of the operating system. Clients run everywhere; nodes and log directories need
the locks and syncs of Linux or macOS.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec

HAS_LOCKS = find_spec("fcntl") is not None
"""False on Windows."""


def refuse_windows(what: str) -> None:
    """Raises OSError on Windows; its text names `what` and the remedy."""
    if not HAS_LOCKS:
        raise OSError(f"{what} needs Linux or macOS; on Windows run it in WSL")


def after_fork_in_child(call: Callable[[], None]) -> None:
    """Does nothing on Windows, which cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
