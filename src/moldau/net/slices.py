"""Long work in slices: work of more than a few milliseconds yields to the event loop in between, so
that other requests are served meanwhile.

State may change between two slices: work on something immutable (an image), or on items that are
independent of each other. This is processor time, not the node's: `Clock` is not involved.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from moldau.net import stopwatch

SLICE_S = 0.002
ITEMS_BETWEEN_CHECKS = 8
"""Reading the time costs a tenth of a small item."""
_FREED_BETWEEN_CHECKS = 100

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
Collection: TypeAlias = list[Any] | set[Any] | dict[Any, Any]


class _Queue:
    """The queue of all work that waits for its next slice. Each turn of the loop has time for one
    of them: with a slice for each, a turn would grow with their number.
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
            # Cancelled if the work was cancelled.
            if not turn.done():
                turn.set_result(None)
                break
        self._is_moving = bool(self._waiting)
        if self._is_moving:
            asyncio.get_running_loop().call_soon(self._move)


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = weakref.WeakKeyDictionary()


async def others_first() -> None:
    """Lets all other tasks run first, including long work that waits already."""
    loop = asyncio.get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _Queue()
    await queue.join(loop)


class Slices:
    """`if slices.is_over: await slices.next()`, in a loop whose items are not tiny."""

    __slots__ = ("_ends_s",)

    def __init__(self) -> None:
        self.begin()

    @property
    def is_over(self) -> bool:
        return stopwatch.now_s() >= self._ends_s

    async def next(self) -> None:
        """Lets all other tasks run first."""
        await others_first()
        self.begin()

    def begin(self) -> None:
        """Begins the next slice; other tasks have run."""
        self._ends_s = stopwatch.now_s() + SLICE_S


def in_slices(
    work: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    finish: Callable[[list[ResultT]], AnswerT],
) -> AnswerT | Awaitable[AnswerT]:
    """`finish([work(item) for item in items])`: at once if one slice is enough, which is nearly
    always the case; otherwise an awaitable. `items` must not change until then.
    """
    results: list[ResultT] = []
    left = iter(items)
    if _is_done_in_slice(work, left, results):
        return finish(results)
    return _finished(work, left, results, finish)


def once_in_slices(
    work: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    key: Callable[[ItemT], Hashable],
    finish: Callable[[list[ResultT]], AnswerT],
) -> AnswerT | Awaitable[AnswerT]:
    """Like `in_slices`, but of several items with the same key only the first is worked on."""
    seen: set[Hashable] = set()
    results: list[ResultT] = []

    def work_once(item: ItemT) -> None:
        name = key(item)
        if name not in seen:
            seen.add(name)
            results.append(work(item))

    left = iter(items)
    if _is_done_in_slice(work_once, left, []):
        return finish(results)

    async def finished() -> AnswerT:
        await others_first()
        await _run_slices(work_once, left, [])
        answer = finish(results)
        await free_in_slices(seen)
        return answer

    return finished()


async def free_in_slices(*collections: Collection) -> None:
    """Empties them. Freeing a hundred thousand objects at once takes ten milliseconds."""
    slices = Slices()
    for collection in collections:
        while collection:
            _free_from(collection)
            if slices.is_over:
                await slices.next()


def free_later(*collections: Collection) -> None:
    """Like `free_in_slices`, in the background. Nothing may use the collections afterwards; small
    ones are left to the caller.
    """
    large = [each for each in collections if len(each) > _FREED_BETWEEN_CHECKS]
    if large:
        asyncio.get_running_loop().call_soon(_free_some, large)


def _free_some(collections: list[Collection]) -> None:
    slices = Slices()
    while not slices.is_over:
        _free_from(collections[-1])
        if not collections[-1]:
            collections.pop()
        if not collections:
            return
    asyncio.get_running_loop().call_soon(_free_some, collections)


def _free_from(collection: Collection) -> None:
    if isinstance(collection, list):
        del collection[-_FREED_BETWEEN_CHECKS:]
        return
    remove = collection.popitem if isinstance(collection, dict) else collection.pop
    for _ in range(min(len(collection), _FREED_BETWEEN_CHECKS)):
        remove()


async def slices_of(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """`[work(item) for item in items]`. The first slice is done at once."""
    results: list[ResultT] = []
    await _run_slices(work, iter(items), results)
    return results


async def _finished(
    work: Callable[[ItemT], ResultT],
    left: Iterator[ItemT],
    results: list[ResultT],
    finish: Callable[[list[ResultT]], AnswerT],
) -> AnswerT:
    await others_first()
    await _run_slices(work, left, results)
    return finish(results)


async def _run_slices(
    work: Callable[[ItemT], ResultT], left: Iterator[ItemT], results: list[ResultT]
) -> None:
    while not _is_done_in_slice(work, left, results):
        await others_first()


def _is_done_in_slice(
    work: Callable[[ItemT], ResultT], left: Iterator[ItemT], results: list[ResultT]
) -> bool:
    ends_s = stopwatch.now_s() + SLICE_S
    until_check = ITEMS_BETWEEN_CHECKS
    for item in left:
        results.append(work(item))
        until_check -= 1
        if not until_check:
            if stopwatch.now_s() >= ends_s:
                return False
            until_check = ITEMS_BETWEEN_CHECKS
    return True
