"""Changes on a disk as steps: a generator does what is quick itself and yields what may take
seconds, which is syncs. Whoever drives it runs that here or in a thread, and the generator goes on
with the outcome. It must not rely on what it saw before a step: the owner of the logs goes on.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

Slow = Callable[[], object]
Steps: TypeAlias = Generator[Slow, None, ResultT]


def run_here(steps: Steps[ResultT]) -> ResultT:
    """All of it, for callers that may block."""
    try:
        slow = next(steps)
        while True:
            try:
                slow()
            except Exception as error:  # noqa: BLE001 - the generator knows what it means
                slow = steps.throw(error)
            else:
                slow = next(steps)
    except StopIteration as end:
        result: ResultT = end.value
        return result
