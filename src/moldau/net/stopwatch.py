"""How long work takes the processor. This is not the node's time, which is its `Clock`; a
simulation, in which work takes no time, puts another stopwatch in its place.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

now_s: Callable[[], float] = time.perf_counter
"""Call it as `stopwatch.now_s()`."""


@contextlib.contextmanager
def replaced_by(other: Callable[[], float]) -> Iterator[None]:
    """For the whole process."""
    global now_s  # noqa: PLW0603 - read in every slice of work; an argument would reach everywhere
    before, now_s = now_s, other
    try:
        yield
    finally:
        now_s = before
