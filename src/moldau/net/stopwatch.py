"""How long work takes the processor. This is not the node's time, which is its `Clock`; a
simulation, in which work takes no time, puts another stopwatch in its place.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

now_s: Callable[[], float] = time.perf_counter
"""Call it as `stopwatch.now_s()`."""


@contextlib.contextmanager
def replaced_by(other: Callable[[], float]) -> Iterator[None]:
    """For this thread. Nodes in other threads of the process keep theirs."""
    global now_s  # noqa: PLW0603 - read in every slice of work; an argument would reach everywhere
    before, owner = now_s, threading.get_ident()
    now_s = lambda: other() if threading.get_ident() == owner else before()  # noqa: E731
    try:
        yield
    finally:
        now_s = before
