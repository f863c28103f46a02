"""Injects faults into a running node on behalf of a test: error responses and delays. They are
applied where requests are dispatched, before any handler sees them.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from moldau.broker.server.context import Handler, RequestContext, Staged
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.net.clock import Clock


@dataclass(slots=True)
class _Fault:
    times: int | None
    """None: no limit."""
    error: ErrorCode | None = None
    delay_ms: int = 0

    def use(self) -> bool:
        """Counts one use. Returns False if the fault is used up."""
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


class Faults:
    """The interceptor of one node. Its methods must be called in the node's event loop."""

    def __init__(self, clock: "Clock", handler_of: Callable[[ApiKey], Handler]) -> None:
        self._clock = clock
        self._handler_of = handler_of
        self._errors: dict[ApiKey, deque[_Fault]] = {}
        self._delays: dict[ApiKey, deque[_Fault]] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def fail_next(self, api: str, error: str, times: int = 1) -> None:
        """The next `times` requests of `api` fail with `error` and change nothing.

        Raises ValueError for an unknown API or error, and if `times` is below 1.
        """
        fault = _Fault(_at_least(1, "times", times), error=error_named(error))
        self._errors.setdefault(api_named(api), deque()).append(fault)

    def delay(self, api: str, delay_ms: int, times: int | None = None) -> None:
        """All requests of `api`, or the next `times`, wait `delay_ms` before they are handled.

        Raises ValueError for an unknown API, and for numbers that are too small.
        """
        fault = _Fault(
            None if times is None else _at_least(1, "times", times),
            delay_ms=_at_least(0, "ms", delay_ms),
        )
        self._delays.setdefault(api_named(api), deque()).append(fault)

    def clear(self) -> None:
        """Removes all faults; delayed requests are handled at once."""
        self._errors.clear()
        self._delays.clear()
        for waiting in self._waiting:
            _end(waiting)

    def intercept(self, ctx: RequestContext, request: Message) -> Any:
        """Returns None to leave the request to its handler. Raises as a handler would: if the
        response has no place for errors, or a Produce request wants none, the connection is closed.
        """
        failing = _next(self._errors.get(ctx.api_key))
        delaying = _next(self._delays.get(ctx.api_key))
        if failing is not None:
            assert failing.error is not None
            error = KafkaError(failing.error, "injected by a test")
            if delaying is None:
                raise error
            return self._failed_later(delaying.delay_ms, error)
        if delaying is not None:
            _copy_records(request)
            return self._handled_later(delaying.delay_ms, ctx, request)
        return None

    async def _failed_later(self, delay_ms: int, error: KafkaError) -> Message:
        await self._wait(delay_ms)
        raise error

    async def _handled_later(
        self, delay_ms: int, ctx: RequestContext, request: Message
    ) -> Message | Staged | None:
        await self._wait(delay_ms)
        outcome = self._handler_of(ctx.api_key)(ctx, request)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    async def _wait(self, delay_ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(delay_ms, lambda: _end(over))
        self._waiting.add(over)
        try:
            await over
        finally:
            timer.cancel()
            self._waiting.discard(over)


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _next(faults: deque[_Fault] | None) -> _Fault | None:
    while faults:
        if faults[0].use():
            return faults[0]
        faults.popleft()
    return None


def _copy_records(request: Message) -> None:
    """Copies the records: they are views of a buffer that the next read overwrites."""
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            for partition in topic.partition_data:
                if isinstance(partition.records, memoryview):
                    partition.records = bytearray(partition.records)


def _at_least(least: int, name: str, value: int) -> int:
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
    return value


def api_named(name: str) -> ApiKey:
    """Accepts `ListOffsets`, `list_offsets` and `LIST_OFFSETS`."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
    if snake in ApiKey.__members__:
        return ApiKey[snake]
    raise ValueError(f"there is no API {name!r}{_hint(snake, ApiKey.__members__)}")


def error_named(name: str) -> ErrorCode:
    if name in ErrorCode.__members__:
        return ErrorCode[name]
    raise ValueError(f"there is no error {name!r}{_hint(name.upper(), ErrorCode.__members__)}")


def _hint(name: str, known: Any) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
