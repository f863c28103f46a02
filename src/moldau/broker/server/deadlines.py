"""Requests that wait: their deadlines, and how they are woken. There may be tens of thousands; when
many are due together, other work runs in between.

Nearly all are answered in time, so a deadline must be cheap: they are kept in buckets, and only a
bucket has a timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.net.loop_holds import measured
from moldau.net.slices import Slices
from moldau.unexpected import apart

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

# A deadline may be late by less than this share of the wait.
_COARSENESS = 16
_BUCKET_MS_MAX = 128

OnDeadline = Callable[[], None]
Bucket = dict[OnDeadline, None]


class Deadlines:
    """`add` returns the bucket that holds the callback; `bucket.pop(callback)` cancels it."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._buckets: dict[int, Bucket] = {}

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, delay_ms: float, callback: OnDeadline) -> Bucket:
        """`callback` runs not before `delay_ms` are over, and not much later."""
        width_ms = min(_power_of_two_below(delay_ms / _COARSENESS), _BUCKET_MS_MAX)
        now_ms = self._clock.mono_ms()
        due_ms = (int(now_ms + delay_ms) // width_ms + 1) * width_ms
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = {}
            self._clock.call_later(due_ms - now_ms, lambda: self._fire(due_ms))
        bucket[callback] = None
        return bucket

    def _fire(self, due_ms: int) -> None:
        # Nothing is added to this bucket any more: its time has passed.
        bucket, slices = self._buckets[due_ms], Slices()
        while bucket:
            apart(_log, "a deadline", bucket.popitem()[0])
            if slices.is_over:
                self._clock.call_later(0, lambda: self._fire(due_ms))
                return
        del self._buckets[due_ms]


class WakeUps:
    """Calls back at the next turn of the loop, as many as fit into a slice, the others later."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_scheduled = False
        slices = Slices()
        # Callbacks that are added meanwhile run in the next turn.
        for _ in range(len(self._waiting)):
            apart(_log, "waking a request", measured, "wake-up", self._waiting.popleft())
            if slices.is_over:
                break
        if self._waiting:
            self._schedule()


def _power_of_two_below(number: float) -> int:
    return 1 << max(int(number).bit_length() - 1, 0)
