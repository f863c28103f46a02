"""The timers of a coordinator's shard, by key. Most of them are postponed again and again before
they fire (by every heartbeat), so postponing must be cheap: a timer that fires too early is set
again.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.core.coordinator.effects import TimerKey

if TYPE_CHECKING:
    from moldau.net.clock import Clock, Timer


class KeyedTimers:
    def __init__(self, clock: "Clock", fire: Callable[[TimerKey], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._running: dict[TimerKey, tuple[float, Timer]] = {}
        """The due time of each timer, and the scheduled call that will check it, at that time or
        before.
        """

    def __len__(self) -> int:
        return len(self._running)

    def start(self, key: TimerKey, delay_ms: int) -> None:
        due_ms = self._clock.mono_ms() + delay_ms
        running = self._running.get(key)
        if running is not None:
            timer = running[1]
            if timer.due_ms <= due_ms:
                self._running[key] = (due_ms, timer)
                return
            timer.cancel()
        self._running[key] = (due_ms, self._clock.call_later(delay_ms, partial(self._check, key)))

    def stop(self, key: TimerKey) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            running[1].cancel()

    def stop_all(self) -> None:
        for _, timer in self._running.values():
            timer.cancel()
        self._running.clear()

    def _check(self, key: TimerKey) -> None:
        due_ms, _ = self._running[key]
        left_ms = due_ms - self._clock.mono_ms()
        if left_ms > 0:
            timer = self._clock.call_later(left_ms, partial(self._check, key))
            self._running[key] = (due_ms, timer)
        else:
            del self._running[key]
            self._fire(key)
