"""Deadlines of requests that wait. There may be tens of thousands, nearly all of them are answered
in time, so keeping one must cost little: they are kept in buckets, and only a bucket has a timer.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.unexpected import apart

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

# A deadline may be missed by a little: by less than this share of the wait.
_COARSENESS = 16
_BUCKET_MS_MAX = 128

OnDeadline = Callable[[], None]
Bucket = dict[OnDeadline, None]


class Deadlines:
    """`add` gives the bucket that holds the callback; to call it off is `bucket.pop(callback)`."""

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
        bucket = self._buckets.pop(due_ms, None)
        while bucket:
            apart(_log, "a deadline", bucket.popitem()[0])


def _power_of_two_below(number: float) -> int:
    return 1 << max(int(number).bit_length() - 1, 0)
