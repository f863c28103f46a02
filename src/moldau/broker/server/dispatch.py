"""Decodes a frame and calls its handler. Only this module catches unexpected exceptions: it answers
UNKNOWN_SERVER_ERROR and logs them, though not every time.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import Any, NamedTuple

from moldau.broker.server.context import (
    AnyContext,
    BrokerServices,
    ControllerContext,
    ControllerServices,
    Peer,
    RequestContext,
    Staged,
)
from moldau.broker.server.error_responses import error_response
from moldau.broker.server.handler_table import HandlerTable
from moldau.broker.server.large_messages import AT_ONCE, AT_ONCE_BYTES, LargeMessages
from moldau.broker.server.loop_watch import NOTED_S, LoopWatch
from moldau.broker.server.request_pieces import SHAPES, serve_in_pieces
from moldau.net.loop_holds import Measured
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages import request_class
from moldau.protocol.messages.request_header import RequestHeader
from moldau.protocol.wire.codec import decode_prefix
from moldau.protocol.wire.frame import request_header_version
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer
from moldau.unexpected import log_unexpected

_log = logging.getLogger(__name__)

# A request's API and version.
_ROUTE = Struct(">hh")


class Route(NamedTuple):
    """One version of one API, found by the first four bytes of a request."""

    api_key: ApiKey
    version: int
    answer_version: int
    header_version: int
    request_class: type[Message]


class Begun:
    """A request that was begun, and what its handler returned."""

    __slots__ = ("answer_version", "api_key", "correlation_id", "is_large", "outcome", "request")

    def __init__(
        self,
        route: Route,
        correlation_id: int,
        request: Message,
        outcome: Any,
        is_large: bool = False,
    ) -> None:
        self.api_key = route.api_key
        self.answer_version = route.answer_version
        self.correlation_id = correlation_id
        self.request = request
        self.outcome = outcome
        """Message, Staged, an awaitable, or None: no response."""
        self.is_large = is_large
        """It is decoded when it is awaited: `request` is empty until then."""


Interceptor = Callable[[Any, Message], Any]


class Dispatcher:
    def __init__(
        self,
        services: BrokerServices | ControllerServices,
        table: HandlerTable,
        watch: LoopWatch | None = None,
    ) -> None:
        self.services = services
        self.table = table
        self.watch = watch or LoopWatch()
        self.large = LargeMessages()
        self.interceptor: Interceptor | None = None
        """For tests: sees each request first and may supply its response."""
        # Of served versions only, so that no client can make it grow.
        self._routes: dict[bytes, Route] = {}

    def begin(self, peer: Peer, frame: memoryview) -> Begun:
        """Decodes the request and starts its handler, which must not keep views of `frame` beyond
        its synchronous part. Raises MalformedRequestError if the connection is unusable from now
        on.
        """
        began_s = time.perf_counter()
        request: Message | None
        route = self._routes.get(bytes(frame[: _ROUTE.size])) or self._new_route(frame)
        api_key, version, answer_version, header_version, message_class = route
        header, start = decode_prefix(RequestHeader, header_version, frame)
        if version == answer_version:
            # librdkafka 2.x leaves extra bytes at the end of some requests; Kafka ignores them,
            # too.
            request = None
            if len(frame) <= AT_ONCE_BYTES or api_key is ApiKey.PRODUCE:
                try:
                    request, _ = decode_prefix(message_class, version, frame, start, budget=AT_ONCE)
                except MalformedRequestError:
                    if len(frame) < AT_ONCE:
                        raise
        else:
            request = message_class()
        peer.client_id = client_id = header.client_id or ""
        context = self._context(peer, api_key, version, client_id)
        if request is None:
            begun = Begun(route, header.correlation_id, message_class(), None, is_large=True)
            outcome = self._read_and_serve(context, begun, self.large.kept(frame), start)
        else:
            outcome = self._outcome(context, request)
            begun = Begun(route, header.correlation_id, request, outcome)
        if time.perf_counter() - began_s >= NOTED_S:
            self.watch.record_request(context, began_s)
        if type(outcome) is CoroutineType:
            outcome = Measured(outcome, partial(self.watch.record_request, context))
        begun.outcome = outcome
        return begun

    def _context(self, peer: Peer, api_key: ApiKey, version: int, client_id: str) -> AnyContext:
        services, served = self.services, self.table.versions
        if isinstance(services, ControllerServices):
            return ControllerContext(services, peer, api_key, version, client_id, served)
        return RequestContext(services, peer, api_key, version, client_id, served)

    async def _read_and_serve(
        self, context: AnyContext, begun: Begun, frame: Buffer, start: int
    ) -> Message | Staged | None:
        """For a request that takes long to decode, or cannot be decoded."""
        context.is_large = True
        request = begun.request = await self.large.read(
            type(begun.request), context.version, frame, start
        )
        try:
            return await self._serve_large(context, request)
        except Exception as error:  # noqa: BLE001 - see the module's docstring
            unforeseen = error
        refused = partial(failed, context.api_key, request, context.version, unforeseen)
        try:
            return await self.large.in_thread(refused)
        finally:
            # An error refers to this frame by its traceback: a cycle, which would keep the request
            # alive.
            del refused, unforeseen

    async def _serve_large(self, context: AnyContext, request: Message) -> Message | Staged | None:
        shape = SHAPES.get(context.api_key)
        if shape is not None and getattr(request, shape.requested):
            handler = self.table.handler(context.api_key)
            return await serve_in_pieces(partial(handler, context), request, shape)
        outcome = self._outcome(context, request)
        if outcome is None or isinstance(outcome, Message | Staged):
            return outcome
        answer: Message | Staged | None = await outcome
        return answer

    async def serve(self, peer: Peer, request: Message, version: int) -> Message:
        """Serves a request of the node to itself: not encoded, and the result is the complete
        response. Raises MalformedRequestError where a connection would be closed.
        """
        api_key = ApiKey(request.API_KEY)
        context = self._context(peer, api_key, version, "")
        outcome = self._outcome(context, request)
        try:
            if not isinstance(outcome, Message | Staged):
                outcome = await outcome
            answer = await outcome.answer if isinstance(outcome, Staged) else outcome
        except Exception as error:  # noqa: BLE001 - see the module's docstring
            return failed(api_key, request, version, error)
        assert isinstance(answer, Message), api_key
        return answer

    def _new_route(self, frame: memoryview) -> Route:
        if len(frame) < _ROUTE.size:
            raise MalformedRequestError(f"request of {len(frame)} bytes has no header")
        number, version = _ROUTE.unpack_from(frame)
        if number not in API_VERSIONS:
            raise MalformedRequestError(f"there is no API {number}")
        api_key = ApiKey(number)
        message_class = request_class(number)
        header_version = request_header_version(message_class, version)
        if self.table.serves(api_key, version):
            route = Route(api_key, version, version, header_version, message_class)
            self._routes[bytes(frame[: _ROUTE.size])] = route
            return route
        if api_key is ApiKey.API_VERSIONS:
            # A client that is newer than this broker learns that from a response that all clients
            # know.
            return Route(api_key, version, 0, header_version, message_class)
        raise MalformedRequestError(f"{api_key.name} version {version} is not served here")

    def _outcome(self, context: AnyContext, request: Message) -> Any:
        try:
            if self.interceptor is not None:
                outcome = self.interceptor(context, request)
                if outcome is not None:
                    return outcome
            return self.table.handler(context.api_key)(context, request)
        except Exception as error:  # noqa: BLE001 - see the module's docstring
            return failed(context.api_key, request, context.version, error)


def failed(api_key: ApiKey, request: Message, version: int, error: Exception) -> Message:
    """The response to a request whose handler raised. Raises MalformedRequestError if the only way
    to report the error is to close the connection.
    """
    if isinstance(error, MalformedRequestError):
        try:
            raise error
        finally:
            # Its traceback refers to this frame, and with it to the request.
            del error
    if isinstance(error, KafkaError):
        code, detail = error.code, error.detail
    else:
        log_unexpected(_log, api_key.name, error)
        code, detail = ErrorCode.UNKNOWN_SERVER_ERROR, ""
    answer = error_response(request, version, code, detail)
    if answer is None:
        raise MalformedRequestError(f"{api_key.name} cannot be answered: {code.name} {detail}")
    return answer


__all__ = ["Begun", "Dispatcher", "Staged"]
