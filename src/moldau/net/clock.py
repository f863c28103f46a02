"""The one clock of a node. No other module reads the time or sets a timer, so that a test can move
a node's time: `ShiftedClock.advance` fires the timers that become due.
"""

import asyncio
import contextlib
import heapq
import logging
import time
from collections.abc import AsyncIterator, Callable
from itertools import count

from moldau.net.loop_holds import measured
from moldau.net.slices import Slices
from moldau.unexpected import apart

_log = logging.getLogger(__name__)

_SWEEP_AT_MIN = 256


class Timer:
    """A callback that is due at a time of the monotonic clock. It may be cancelled twice."""

    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """`mono_ms` is for waiting and never jumps; `wall_ms` is for the timestamps of records."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._tie_breaker = count()
        self._wake_up: asyncio.TimerHandle | None = None
        self._sweep_at = _SWEEP_AT_MIN

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Runs `callback` in the event loop of the caller, not before `delay_ms` are over."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        timer = Timer(self.mono_ms() + max(delay_ms, 0), callback)
        heapq.heappush(self._heap, (timer.due_ms, next(self._tie_breaker), timer))
        if self._heap[0][2] is timer:
            self._schedule()
        return timer

    async def sleep(self, delay_ms: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_later(delay_ms, wake)
        try:
            await done
        finally:
            timer.cancel()

    @contextlib.asynccontextmanager
    async def timeout(self, delay_ms: float | None) -> AsyncIterator[None]:
        """Like asyncio.timeout: work that takes longer is cancelled, and TimeoutError is raised.
        None sets no timeout.
        """
        if delay_ms is None:
            yield
            return
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as patience:
            timer = self.call_later(delay_ms, lambda: patience.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    def close(self) -> None:
        """No timer fires any more."""
        self._heap.clear()
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _sweep(self) -> None:
        """Drops cancelled timers: one that was set for next month would stay for as long."""
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(2 * len(self._heap), _SWEEP_AT_MIN)

    def _schedule(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        if self._heap:
            delay_s = max(self._heap[0][0] - self.mono_ms(), 0) / 1000
            self._wake_up = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        now_ms, slices = self.mono_ms(), Slices()
        try:
            while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].callback is None):
                timer = heapq.heappop(self._heap)[2]
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    apart(_log, "a timer", measured, "timer", callback)
                    if slices.is_over:
                        # Other callbacks run before the rest.
                        break
        finally:
            self._schedule()


class ShiftedClock(Clock):
    """A clock that tests can move ahead of the real one, by `ahead_ms`."""

    def __init__(self, ahead_ms: int = 0) -> None:
        super().__init__()
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def mono_ms(self) -> float:
        return super().mono_ms() + self.ahead_ms

    def advance(self, ms: int) -> None:
        """Call it in the event loop of the node. Timers that become due fire at the next turn."""
        if ms < 0:
            raise ValueError("the time cannot go back")
        self.ahead_ms += ms
        self._schedule()
