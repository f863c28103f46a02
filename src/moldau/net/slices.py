"""Long work in slices: whoever works for more than a few milliseconds gives the event loop back in
between, so that everybody else is served meanwhile.

State may change between two slices: work on something immutable (an image), or such that every item
stands for itself. The time is the processor's, not the node's: `Clock` has nothing to do with it.
"""

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

SLICE_S = 0.002
ITEMS_BETWEEN_LOOKS = 8
"""A look at the time costs a tenth of what a small item does."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")


class _Line:
    """Of all who wait for their next slice. Each turn of the loop has time for one of them: with a
    slice for each, a turn would be as long as there are many.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_moving = False

    def join(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_moving:
            self._is_moving = True
            loop.call_soon(self._move)
        return turn

    def _move(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            # Cancelled if nobody wants the work any more.
            if not turn.done():
                turn.set_result(None)
                break
        self._is_moving = bool(self._waiting)
        if self._is_moving:
            asyncio.get_running_loop().call_soon(self._move)


_lines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = weakref.WeakKeyDictionary()


async def others_first() -> None:
    """Everybody else has a turn first, and so has long work that waits already."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line()
    await line.join(loop)


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
        await others_first()
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
    await others_first()
    await _go_on(work, left, results)
    return finish(results)


async def _go_on(
    work: Callable[[ItemT], ResultT], left: Iterator[ItemT], results: list[ResultT]
) -> None:
    while not _is_done_in_slice(work, left, results):
        await others_first()


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
