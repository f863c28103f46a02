"""Changes on a disk as steps: a generator does the quick parts itself and yields the calls that may
take seconds, which are syncs. The driver runs such a call in place or in a thread and resumes the
generator with the outcome. State read before a step may be stale after it: the owner of the logs
keeps working.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

Slow = Callable[[], object]
Steps: TypeAlias = Generator[Slow, None, ResultT]


def others_first() -> None:
    """Yield it between quick parts that take long together: an event loop runs others meanwhile."""


def run_here(steps: Steps[ResultT]) -> ResultT:
    """Runs all steps in place, for callers that may block."""
    try:
        slow = next(steps)
        while True:
            try:
                slow()
            except Exception as error:  # noqa: BLE001 - the generator handles it
                slow = steps.throw(error)
            else:
                slow = next(steps)
    except StopIteration as end:
        result: ResultT = end.value
        return result
