"""Requests to a controller in another process. One connection, which follows the leadership."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.controller.controller_channel import NotDoneError
from moldau.broker.controller.envelope import unwrapped_response, wrapped
from moldau.broker.controller.error_search import has_error
from moldau.broker.server.large_messages import AT_ONCE, LargeMessages
from moldau.core.controller.decisions import REPEATABLE
from moldau.net.negotiated_channel import NegotiatedChannel
from moldau.net.request_channel import Address, ChannelError, ChannelOptions
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, error_code
from moldau.protocol.messages import response_class
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.wire.codec import MessageTooLargeError
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.broker.server.context import ConfigHolder, Peer
    from moldau.net.clock import Clock


class _Opening(NamedTuple):
    address: Address
    task: "asyncio.Task[NegotiatedChannel]"


class RemoteController:
    def __init__(
        self,
        settings: "ConfigHolder",
        clock: "Clock",
        *,
        client_id: str,
        is_over: Callable[[tuple[str, int]], bool],
        attempt_ms: Callable[[], float] | None = None,
    ) -> None:
        """`is_over`: the controller at this address has a successor. `attempt_ms`: the time after
        which a connection without a response counts as broken, if that is less than
        controller.socket.timeout.ms.
        """
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._is_over = is_over
        self._attempt_ms = attempt_ms
        self._connection: NegotiatedChannel | None = None
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks()
        self._opening: _Opening | None = None
        self._large = LargeMessages()
        self._is_closed = False

    @property
    def served(self) -> Mapping[int, tuple[int, int]] | None:
        """The versions of each API that the controller serves; None without a connection."""
        connection = self._connection
        is_open = connection is not None and not connection.channel.is_closed
        return connection.served if connection is not None and is_open else None

    def close(self) -> None:
        """Requests under way fail, and no connection is opened any more."""
        self._is_closed = True
        reason = "the node is stopping"
        if self._opening is not None:
            self.hang_up(self._opening.address, reason)
        if self._connection is not None:
            self._connection.channel.drop(reason)

    def hang_up(self, address: tuple[str, int], reason: str) -> None:
        """Requests under way to the controller at this address fail."""
        opening, connection = self._opening, self._connection
        if opening is not None and opening.address == address:
            self._opening = None
            opening.task.cancel()
        if connection is not None and connection.channel.address == address:
            connection.channel.drop(reason)

    async def send(self, address: tuple[str, int], request: Message) -> Message:
        """Raises NotDoneError, or KafkaError if there is no response or the outcome is unknown."""
        connection = await self._connected(address)
        answer = await self._ask(connection, request, ApiKey(request.API_KEY))
        if has_error(answer, ErrorCode.NOT_CONTROLLER):
            raise NotDoneError(f"{connection.channel.address} is not the active controller")
        return answer

    async def forward(
        self, address: tuple[str, int], request: Message, version: int | None, peer: "Peer"
    ) -> Message:
        """Sends a client's request in an envelope; in the newest version that both nodes know if
        `version` is None. Raises what `send` raises, and MalformedRequestError if the controller
        does not serve the client's version: the client has to ask for the versions again.
        """
        connection = await self._connected(address)
        api_key = ApiKey(request.API_KEY)
        used = _version_of(connection, api_key) if version is None else version
        answer = await self._ask(connection, await self._wrapped(request, used, peer), api_key)
        assert isinstance(answer, EnvelopeResponse)
        code = error_code(answer.error_code)
        if code is ErrorCode.NOT_CONTROLLER:
            raise NotDoneError(f"{connection.channel.address} is not the active controller")
        if code is ErrorCode.UNSUPPORTED_VERSION and version is not None:
            where = f"the controller at {connection.channel.address}"
            raise MalformedRequestError(f"{where} does not serve {api_key.name} version {version}")
        # The client is not to blame if the nodes disagree.
        if code is not ErrorCode.NONE:
            detail = (
                f"the controller at {connection.channel.address} refused the envelope: {code.name}"
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
        try:
            return await self._unwrapped(answer.response_data or b"", api_key, used)
        except MalformedRequestError as error:
            detail = f"the controller at {connection.channel.address}: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, detail) from None

    async def _wrapped(self, request: Message, version: int, peer: "Peer") -> EnvelopeRequest:
        try:
            return wrapped(request, version, peer, budget=AT_ONCE)
        except MessageTooLargeError:
            return await self._large.in_thread(partial(wrapped, request, version, peer))

    async def _unwrapped(self, content: bytes, api_key: ApiKey, version: int) -> Message:
        try:
            return unwrapped_response(content, api_key, version, budget=AT_ONCE)
        except MalformedRequestError:
            if len(content) < AT_ONCE:
                raise
        return await self._large.in_thread(partial(unwrapped_response, content, api_key, version))

    async def _connected(self, host_and_port: tuple[str, int]) -> NegotiatedChannel:
        address = Address(*host_and_port)
        async with self._one_at_a_time:
            if self._is_closed or self._is_over(address):
                # Since this request waits for its turn.
                raise NotDoneError(f"{address} is no longer needed")
            connection = self._connection
            if connection is not None and not connection.channel.is_closed:
                if connection.channel.address == address:
                    return connection
                connection.channel.drop("another node is the active controller")
            config = self._settings.current
            options = ChannelOptions(
                client_id=self._client_id,
                connect_timeout_ms=config.socket_connection_setup_timeout_ms,
                request_timeout_ms=round(self._patience_ms()),
            )
            return await self._opened(address, options)

    async def _opened(self, address: Address, options: ChannelOptions) -> NegotiatedChannel:
        opening = self._tasks.start(
            self._open(address, options), f"connect to {address}", expects=(ChannelError,)
        )
        self._opening = _Opening(address, opening)
        try:
            opened: NegotiatedChannel = await opening
        except ChannelError as error:
            raise NotDoneError(str(error)) from None
        except asyncio.CancelledError:
            if self._opening is not None:
                # The caller is cancelled.
                raise
            raise NotDoneError(f"{address} is no longer needed") from None
        finally:
            self._opening = None
        return opened

    async def _open(self, address: Address, options: ChannelOptions) -> NegotiatedChannel:
        opened = await NegotiatedChannel.open(address, self._clock, options)
        # Here, because the request that it is for may be cancelled at this moment.
        self._connection = opened
        return opened

    async def _ask(
        self, connection: NegotiatedChannel, request: Message, api_key: ApiKey
    ) -> Message:
        """`api_key`: that of the request itself, or of the one in the envelope."""
        asked = ApiKey(request.API_KEY)
        version = _version_of(connection, asked)
        try:
            return await connection.channel.ask(
                request, response_class(asked), version, timeout_ms=self._patience_ms()
            )
        except ChannelError as error:
            if not error.was_sent or api_key in REPEATABLE:
                raise NotDoneError(str(error)) from None
            detail = f"{error}; the controller may have done it"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None

    def _patience_ms(self) -> float:
        limit_ms = self._settings.current.controller_socket_timeout_ms
        return limit_ms if self._attempt_ms is None else min(self._attempt_ms(), limit_ms)


def _version_of(connection: NegotiatedChannel, api_key: ApiKey) -> int:
    """Raises UNSUPPORTED_VERSION."""
    version = connection.version_of(api_key)
    if version is None:
        detail = f"{connection.channel.address} does not serve {api_key.name}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
    return version
