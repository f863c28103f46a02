"""The client side of one connection to a Kafka node. Requests are pipelined; a response is
delivered only to its own request. A late or unexpected response ends the connection: all waiting
requests then fail with ChannelError, whose text names the node.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from moldau.frozen import frozen
from moldau.net.clock import Clock, Timer
from moldau.net.frame_reader import FrameReader
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MalformedRequestError, MoldauError
from moldau.protocol.wire.codec import TRUSTED_ELEMENT_BUDGET
from moldau.protocol.wire.frame import (
    FRAME_BYTES_MAX,
    build_request,
    read_response,
    response_header_version,
)
from moldau.protocol.wire.schema import Message
from moldau.types import INT32_MAX

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)

_TLS_ALERT = b"\x15\x03"
_HTTP = b"HTTP"
# Longer responses are read straight into buffers of their own.
_SCRATCH_BYTES = 16 * 1024


class ChannelError(MoldauError):
    """The connection could not be opened, or was lost."""

    was_sent = True
    """False if it was lost before anything of the request was sent."""


class NothingListensError(ChannelError):
    """Nothing listens at any address of the node: its process has ended."""


class UntrustedError(ChannelError):
    """The TLS handshake failed: one side does not trust the other. Retrying does not help."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen(kw_only=True)
class ChannelOptions:
    client_id: str = "moldau"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    in_flight_max: int = 64
    tls: ssl.SSLContext | None = None


class _Call:
    """Calls back with the response at once; a future would wait for the loop's next turn."""

    __slots__ = ("_loop", "_then")

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[Any], None]) -> None:
        self._loop = loop
        self._then = then

    def done(self) -> bool:
        return False

    def set_result(self, answer: Any) -> None:
        try:
            self._then(answer)
        except Exception:  # noqa: BLE001 - the connection is not to blame
            _log.exception("the callback of a response failed")

    def set_exception(self, error: ChannelError) -> None:
        # Not at once: the connection is just being taken down.
        self._loop.call_soon(self._then, error)


class _Waiting(NamedTuple):
    answer: "asyncio.Future[Any] | _Call"
    message_class: type[Message]
    version: int
    deadline_ms: float


class RequestChannel(asyncio.BufferedProtocol):
    def __init__(self, address: Address, clock: Clock, options: ChannelOptions) -> None:
        self.address = address
        self._clock = clock
        self._options = options
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frames = FrameReader(self._scratch, options.frame_bytes_max)
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._room = asyncio.Event()
        self._may_write = True
        self._next_id = 0
        self._received_bytes = 0
        self._answers = 0
        self._failure: ChannelError | None = None
        self._lost = asyncio.Event()
        self._watchdog: Timer | None = None
        self._is_held = False
        self.used_ms = clock.mono_ms()
        """The time at which it last sent or received bytes."""

    @classmethod
    async def open(
        cls, address: Address, clock: Clock, options: ChannelOptions | None = None
    ) -> "RequestChannel":
        """Tries every address of the host name, one after the other."""
        chosen = options or ChannelOptions()
        loop = asyncio.get_running_loop()
        problem, errors = "the name has no address", list[OSError]()
        try:
            async with clock.timeout(chosen.connect_timeout_ms):
                for family, _, _, _, resolved in await _resolved(loop, address):
                    channel = cls(address, clock, chosen)
                    host, port = str(resolved[0]), int(resolved[1])
                    try:
                        await loop.create_connection(
                            lambda channel=channel: channel,
                            host,
                            port,
                            family=family,
                            ssl=chosen.tls,
                            server_hostname=address.host if chosen.tls else None,
                        )
                    except ssl.SSLError as error:
                        raise UntrustedError(f"{address}: {_tls_problem(error)}") from None
                    except OSError as error:
                        problem = _connect_problem(error)
                        errors.append(error)
                        if chosen.tls is not None and isinstance(error, ConnectionResetError):
                            problem = "it closed the connection instead of speaking TLS"
                        continue
                    return channel
        except TimeoutError as error:
            problem = f"no connection within {chosen.connect_timeout_ms} ms"
            errors.append(error)
        except ValueError:
            # No host has a name like that.
            problem = "the name is not valid"
        except OSError as error:
            is_unknown = isinstance(error, socket.gaierror)
            problem = "the name is not known" if is_unknown else _connect_problem(error)
            errors.append(error)
        kind = NothingListensError if _nothing_listens(errors) else ChannelError
        raise kind(f"cannot reach {address}: {problem}")

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def ask(
        self,
        request: Message,
        answer_class: type[Answer],
        version: int,
        *,
        timeout_ms: float | None = None,
        is_urgent: bool = False,
    ) -> Answer:
        """Waits for room in the pipeline, sends, and waits for the response. Urgent requests are
        sent even while the channel is held. Raises ChannelError.
        """
        try:
            await self._wait_for_room(is_urgent=is_urgent)
        except ChannelError as error:
            unsent = type(error)(str(error))
            unsent.was_sent = False
            raise unsent from None
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._expect(self._send(request, version), future, answer_class, version, timeout_ms)
        return await future

    @property
    def is_free(self) -> bool:
        """Whether `post` may be called."""
        return (
            self._failure is None
            and not self._is_held
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def post(
        self,
        request: Message,
        answer_class: type[Answer],
        version: int,
        then: "Callable[[Answer | ChannelError], None]",
    ) -> None:
        """Sends at once. `then` is called once, with the response or with the error; it must not
        raise. The caller bounds the number of requests in flight.
        """
        call = _Call(asyncio.get_running_loop(), then)
        self._expect(self._send(request, version), call, answer_class, version, None)

    def _expect(
        self,
        correlation_id: int,
        answer: "asyncio.Future[Any] | _Call",
        answer_class: type[Message],
        version: int,
        timeout_ms: float | None,
    ) -> None:
        patience_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._clock.mono_ms() + patience_ms
        self._waiting[correlation_id] = _Waiting(answer, answer_class, version, deadline_ms)
        self._watch(deadline_ms)

    async def send_unanswered(self, request: Message, version: int) -> None:
        """For the one request without a response: Produce with acks=0. Waits until it is written,
        because no response shows that the node keeps up.
        """
        await self._wait_for_room()
        assert self._transport is not None
        self._transport.set_write_buffer_limits(0)
        self._send(request, version)
        try:
            async with self._clock.timeout(self._options.request_timeout_ms):
                await self._wait_for_room()
        except TimeoutError:
            self._fail("the request was not read in time")
            raise self._failure from None  # type: ignore[misc]

    def hold(self) -> None:
        """Sends only urgent requests until `release`."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._room.set()

    def drop(self, problem: str) -> None:
        """Ends the connection; waiting requests fail with `problem`."""
        self._fail(problem)

    async def close(self) -> None:
        self._fail("the client closed the connection")
        await self._lost.wait()

    async def _wait_for_room(self, *, is_urgent: bool = False) -> None:
        while self._failure is None and not (
            self._may_write
            and (is_urgent or (not self._is_held and self.in_flight < self._options.in_flight_max))
        ):
            self._room.clear()
            await self._room.wait()
        if self._transport is not None and self._transport.is_closing():
            # asyncio reports a broken connection one turn later.
            self._fail("the connection was lost")
        if self._failure is not None:
            raise self._failure

    def _send(self, request: Message, version: int) -> int:
        assert self._transport is not None
        self.used_ms = self._clock.mono_ms()
        correlation_id = self._next_id
        self._next_id = 0 if correlation_id == INT32_MAX else correlation_id + 1
        self._transport.writelines(
            build_request(
                request,
                version,
                correlation_id=correlation_id,
                client_id=self._options.client_id,
            )
        )
        return correlation_id

    def _watch(self, deadline_ms: float) -> None:
        if self._watchdog is not None and self._watchdog.callback is not None:
            if self._watchdog.due_ms <= deadline_ms:
                return
            self._watchdog.cancel()
        self._watchdog = self._clock.call_later(
            deadline_ms - self._clock.mono_ms(), self._check_deadline
        )

    def _check_deadline(self) -> None:
        if not self._waiting:
            return
        next_ms = min(waiting.deadline_ms for waiting in self._waiting.values())
        if next_ms <= self._clock.mono_ms():
            # Responses come in order: after a late one, all are late.
            self._fail("no response in time")
        else:
            self._watch(next_ms)

    def _fail(self, problem: str, kind: type[ChannelError] = ChannelError) -> None:
        if self._failure is not None:
            return
        self._failure = kind(f"{self.address}: {problem}")
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._failure)
        self._waiting.clear()
        self._room.set()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._lost.set()

    def _take(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise MalformedRequestError(
                f"a response with an unknown correlation id ({correlation_id})"
            )
        self._answers += 1
        self._room.set()
        try:
            _, answer = read_response(
                frame,
                waiting.message_class,
                _answered_version(frame, waiting),
                budget=TRUSTED_ELEMENT_BUDGET,
            )
        except MoldauError as error:
            if not waiting.answer.done():
                waiting.answer.set_exception(ChannelError(f"{self.address}: {error}"))
            raise
        if not waiting.answer.done():
            waiting.answer.set_result(answer)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._room.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        is_first = not self._received_bytes
        self._received_bytes += nbytes
        self.used_ms = self._clock.mono_ms()
        if is_first and (protocol := _foreign_protocol(bytes(self._scratch[:nbytes]))):
            self._fail(protocol)
        if self._failure is not None:
            return
        try:
            frames = self._frames
            frames.received(nbytes)
            while (frame := frames.next_frame()) is not None:
                # Responses keep the buffer that they were read from.
                self._take(memoryview(bytes(frame)) if frames.is_shared else frame)
        except MoldauError as error:
            self._fail(str(error))

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            # With TLS 1.3 a server checks the client's certificate after the handshake.
            self._fail(_tls_problem(exc), UntrustedError)
        elif self._answers == 1 and self._waiting:
            # Servers answer ApiVersions, the first request, to clients that are not authenticated.
            self._fail("the connection was lost at the first request; it may require SASL")
        elif self._received_bytes:
            self._fail("the connection was lost")
        else:
            self._fail(
                "closed the connection without a response; it is not a Kafka listener, or it "
                "requires TLS or SASL"
            )
        self._lost.set()


async def _resolved(loop: asyncio.AbstractEventLoop, address: Address) -> list[tuple[Any, ...]]:
    try:
        return await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except RuntimeError:
        # The interpreter is shutting down and starts no more threads; the last lookups may block.
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM)


def _foreign_protocol(first: bytes) -> str | None:
    """Names the protocol of a server that is not Kafka, if it is recognized."""
    if first.startswith(_TLS_ALERT):
        return "this port speaks TLS; plain connections are refused there"
    if first.startswith(_HTTP):
        return "this port speaks HTTP, not Kafka's protocol"
    return None


def _answered_version(frame: memoryview, waiting: _Waiting) -> int:
    """A node that does not know our version of ApiVersions responds in version 0 (KIP-511)."""
    if waiting.message_class.API_KEY == ApiKey.API_VERSIONS:
        start = 4 + response_header_version(waiting.message_class, waiting.version)
        if int.from_bytes(frame[start : start + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            return 0
    return waiting.version


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason:
        return "this port does not speak TLS"
    if "certificate" in reason or "handshake failure" in reason:
        return f"no TLS; it may require a client certificate: {reason}"
    return f"no TLS: {reason}"


def _nothing_listens(errors: Sequence[OSError]) -> bool:
    return bool(errors) and all(isinstance(each, ConnectionRefusedError) for each in errors)


def _connect_problem(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return error.strerror or str(error) or type(error).__name__
