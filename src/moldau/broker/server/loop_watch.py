"""How long single requests, and callbacks that serve none, block the event loop: a metric for each
API and kind of callback, and a log line if it is too long, which names the client if there is one.
Only work in the loop counts, not waiting.
"""

import logging
import time
from typing import TYPE_CHECKING

from moldau.net.loop_holds import NOTED_MS, name_of

if TYPE_CHECKING:
    from moldau.broker.server.context import AnyContext

_log = logging.getLogger(__name__)

NOTED_S = NOTED_MS / 1000
SLOW_MS = 100.0
_LINE_EVERY_S = 10.0
_TEXT_CHARS_MAX = 100


class RecentMax:
    """The maximum of the last 30 to 60 seconds."""

    __slots__ = ("_before", "_current", "_since_s")
    HALF_S = 30.0

    def __init__(self) -> None:
        self._since_s = 0.0
        self._current = 0.0
        self._before = 0.0

    def add(self, number: float, now_s: float) -> None:
        self._move_on(now_s)
        self._current = max(self._current, number)

    def of(self, now_s: float) -> float:
        self._move_on(now_s)
        return max(self._current, self._before)

    def _move_on(self, now_s: float) -> None:
        passed_s = now_s - self._since_s
        if passed_s >= self.HALF_S:
            self._before = self._current if passed_s < 2 * self.HALF_S else 0.0
            self._current = 0.0
            self._since_s = now_s


class _Lines:
    """Log lines of one kind: at most one in ten seconds, with the number of those left out."""

    def __init__(self) -> None:
        self._quiet_until_s = 0.0
        self._left_out = 0

    def may_write(self, now_s: float) -> bool:
        if now_s < self._quiet_until_s:
            self._left_out += 1
            return False
        self._quiet_until_s = now_s + _LINE_EVERY_S
        return True

    def left_out(self) -> str:
        count, self._left_out = self._left_out, 0
        return f"; {count} more since the last such line" if count else ""


class LoopWatch:
    def __init__(self) -> None:
        self.longest_ms = RecentMax()
        self.by_api: dict[str, RecentMax] = {}
        self.by_kind: dict[str, RecentMax] = {}
        """Of callbacks that serve no request."""
        self._requests, self._callbacks = _Lines(), _Lines()

    def record_request(self, context: "AnyContext", began_s: float) -> None:
        """Records the time that a request has just blocked the loop, since `began_s`."""
        now_s = time.perf_counter()
        took_ms = (now_s - began_s) * 1000
        if took_ms < NOTED_MS:
            return
        name = context.api_key.name
        self.longest_ms.add(took_ms, now_s)
        self.by_api.setdefault(name, RecentMax()).add(took_ms, now_s)
        if took_ms >= SLOW_MS and self._requests.may_write(now_s):
            _log.warning(
                "a %s request of client %r at %s blocked all other requests for %.0f ms%s",
                context.api_key.name,
                context.client_id[:_TEXT_CHARS_MAX],
                context.peer.host,
                took_ms,
                self._requests.left_out(),
            )

    def record_callback(self, kind: str, call: object, took_ms: float) -> None:
        """A report of `net.loop_holds`."""
        now_s = time.perf_counter()
        self.longest_ms.add(took_ms, now_s)
        self.by_kind.setdefault(kind, RecentMax()).add(took_ms, now_s)
        if took_ms >= SLOW_MS and self._callbacks.may_write(now_s):
            _log.warning(
                "a %s (%s) blocked all requests for %.0f ms%s",
                kind,
                name_of(call),
                took_ms,
                self._callbacks.left_out(),
            )

    def record_lag(self, lag_ms: float) -> None:
        """Records how late a timer was, whatever delayed it."""
        self.longest_ms.add(lag_ms, time.perf_counter())

    def recent_ms(self) -> float:
        return self.longest_ms.of(time.perf_counter())

    def recent_ms_by_api(self) -> dict[str, float]:
        return _recent(self.by_api)

    def recent_ms_by_kind(self) -> dict[str, float]:
        return _recent(self.by_kind)


def _recent(longest_ms: dict[str, RecentMax]) -> dict[str, float]:
    now_s = time.perf_counter()
    return {name: longest.of(now_s) for name, longest in sorted(longest_ms.items())}
