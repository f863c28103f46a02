"""How long single requests block the event loop: a metric for each API, and a log line that names
the client if it is too long. Only work in the loop counts, not waiting.
"""

import logging
import time
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.broker.server.context import AnyContext

_log = logging.getLogger(__name__)

NOTED_MS = 1.0
"""Shorter times are not counted."""
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


class LoopWatch:
    def __init__(self) -> None:
        self.longest_ms = RecentMax()
        self.by_api: dict[str, RecentMax] = {}
        self._quiet_until_s = 0.0
        self._left_out = 0

    def record_request(self, context: "AnyContext", began_s: float) -> None:
        """Records the time that a request has just blocked the loop, since `began_s`."""
        now_s = time.perf_counter()
        took_ms = (now_s - began_s) * 1000
        if took_ms < NOTED_MS:
            return
        name = context.api_key.name
        self.longest_ms.add(took_ms, now_s)
        self.by_api.setdefault(name, RecentMax()).add(took_ms, now_s)
        if took_ms >= SLOW_MS:
            self._log_slow(context, took_ms, now_s)

    def _log_slow(self, context: "AnyContext", took_ms: float, now_s: float) -> None:
        if now_s < self._quiet_until_s:
            self._left_out += 1
            return
        more = f"; {self._left_out} more since the last such line" if self._left_out else ""
        self._quiet_until_s, self._left_out = now_s + _LINE_EVERY_S, 0
        _log.warning(
            "a %s request of client %r at %s blocked all other requests for %.0f ms%s",
            context.api_key.name,
            context.client_id[:_TEXT_CHARS_MAX],
            context.peer.host,
            took_ms,
            more,
        )

    def record_lag(self, lag_ms: float) -> None:
        """Records how late a timer was, whatever delayed it."""
        self.longest_ms.add(lag_ms, time.perf_counter())

    def recent_ms(self) -> float:
        return self.longest_ms.of(time.perf_counter())

    def recent_ms_by_api(self) -> dict[str, float]:
        now_s = time.perf_counter()
        return {name: longest.of(now_s) for name, longest in sorted(self.by_api.items())}


class Watched(Coroutine[Any, Any, Any]):
    """A handler's coroutine, with every step of its work measured."""

    __slots__ = ("_context", "_watch", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, Any], watch: LoopWatch, context: "AnyContext"
    ) -> None:
        self._work = work
        self._watch = watch
        self._context = context

    def send(self, value: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._watch.record_request(self._context, began_s)

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        finally:
            # The traceback of the error refers to this frame: a cycle, which includes the request.
            del error

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        # Awaited by work that is measured already, or by the node's own requests.
        return self._work.__await__()
