"""Long work in slices: whoever works for more than a few milliseconds gives the event loop back in
between, so that everybody else is served meanwhile.

State may change between two slices: work on something immutable (an image), or such that every item
stands for itself. The time is the processor's, not the node's: `Clock` has nothing to do with it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

SLICE_S = 0.002
ITEMS_BETWEEN_LOOKS = 8
"""A look at the time costs a tenth of what a small item does."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")


class Slices:
    """`if slices.is_over: await slices.next()`, in a loop whose items are not tiny."""

    __slots__ = ("_ends_s",)

    def __init__(self) -> None:
        self.begin()

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._ends_s

    async def next(self) -> None:
        """Everybody else has a turn first."""
        await asyncio.sleep(0)
        self.begin()

    def begin(self) -> None:
        """The next one; others have had their turn."""
        self._ends_s = time.perf_counter() + SLICE_S


def in_slices(
    work: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    finish: Callable[[list[ResultT]], AnswerT],
) -> AnswerT | Awaitable[AnswerT]:
    """`finish([work(item) for item in items])`: at once if one slice is enough for it, as nearly
    always; otherwise awaitable. `items` must not change until then.
    """
    results: list[ResultT] = []
    left = iter(items)
    if _is_done_in_slice(work, left, results):
        return finish(results)
    return _finished(work, left, results, finish)


async def slices_of(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """`[work(item) for item in items]`, of which the first slice is done at once."""
    results: list[ResultT] = []
    await _go_on(work, iter(items), results)
    return results


async def _finished(
    work: Callable[[ItemT], ResultT],
    left: Iterator[ItemT],
    results: list[ResultT],
    finish: Callable[[list[ResultT]], AnswerT],
) -> AnswerT:
    await asyncio.sleep(0)
    await _go_on(work, left, results)
    return finish(results)


async def _go_on(
    work: Callable[[ItemT], ResultT], left: Iterator[ItemT], results: list[ResultT]
) -> None:
    while not _is_done_in_slice(work, left, results):  # noqa: ASYNC110 - not waiting: working
        await asyncio.sleep(0)


def _is_done_in_slice(
    work: Callable[[ItemT], ResultT], left: Iterator[ItemT], results: list[ResultT]
) -> bool:
    ends_s = time.perf_counter() + SLICE_S
    until_look = ITEMS_BETWEEN_LOOKS
    for item in left:
        results.append(work(item))
        until_look -= 1
        if not until_look:
            if time.perf_counter() >= ends_s:
                return False
            until_look = ITEMS_BETWEEN_LOOKS
    return True
