"""How long single callbacks hold an event loop: timers, steps of tasks, and others that measure
themselves here. Nodes that run in the loop get a report of those that are not short.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, ParamSpec
from weakref import WeakKeyDictionary

NOTED_MS = 1.0
"""Shorter times are not reported."""
_TEXT_CHARS_MAX = 100

P = ParamSpec("P")
Report = Callable[[str, object, float], None]
"""Gets the kind of callback (of a bounded set), what was called, and the milliseconds it took."""

_reports: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Report]] = WeakKeyDictionary()


def watch_loop(report: Report) -> None:
    """Calls `report` after each callback of the running loop that has held it."""
    _reports.setdefault(asyncio.get_running_loop(), []).append(report)


def unwatch_loop(report: Report) -> None:
    reports = _reports.get(asyncio.get_running_loop(), [])
    if report in reports:
        reports.remove(report)


def ended(kind: str, call: object, began_s: float) -> None:
    """A callback of the running loop, which began at this time of `perf_counter`, ends here."""
    took_ms = (time.perf_counter() - began_s) * 1000
    if took_ms >= NOTED_MS:
        for report in _reports.get(asyncio.get_running_loop(), ()):
            report(kind, call, took_ms)


def measured(kind: str, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    began_s = time.perf_counter()
    try:
        call(*args, **kwargs)
    finally:
        ended(kind, call, began_s)


def name_of(call: object) -> str:
    """For people: the function, and the simple ones of its arguments; a text is its own name."""
    if isinstance(call, str):
        return call[:_TEXT_CHARS_MAX]
    function = call.func if isinstance(call, partial) else call
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    name = name.removesuffix(".<lambda>").removesuffix(".<locals>")
    if isinstance(call, partial):
        simple = [repr(each) for each in call.args if isinstance(each, str | int | tuple)]
        name += f"({', '.join(simple)})" if simple else ""
    return name[:_TEXT_CHARS_MAX]


class Measured(Coroutine[Any, Any, Any]):
    """A coroutine that calls `step_ended` after every step, with the time at which it began."""

    __slots__ = ("_step_ended", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, Any], step_ended: Callable[[float], object]
    ) -> None:
        self._work = work
        self._step_ended = step_ended

    def send(self, value: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._step_ended(began_s)

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
