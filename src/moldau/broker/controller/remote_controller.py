"""Requests to a controller in another process. One connection, which follows the leadership."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.controller.controller_channel import NotDoneError
from moldau.broker.controller.envelope import unwrapped_response, wrapped
from moldau.broker.controller.error_search import has_error
from moldau.net.negotiated_channel import NegotiatedChannel
from moldau.net.request_channel import Address, ChannelError, ChannelOptions
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, error_code
from moldau.protocol.messages import response_class
from moldau.protocol.messages.envelope import EnvelopeResponse
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.broker.server.context import ConfigHolder, Peer
    from moldau.net.clock import Clock

_REPEATABLE = {
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
}
"""They may be done twice. Kafka repeats all requests; the client of a topic that was created by a
first attempt then learns that it exists already.
"""


class RemoteController:
    def __init__(
        self,
        settings: "ConfigHolder",
        clock: "Clock",
        *,
        client_id: str,
        attempt_ms: Callable[[], float] | None = None,
    ) -> None:
        """`attempt_ms`: the time after which a connection without a response counts as broken, if
        that is less than controller.socket.timeout.ms.
        """
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._attempt_ms = attempt_ms
        self._connection: NegotiatedChannel | None = None
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks()
        self._opening: asyncio.Task[NegotiatedChannel] | None = None

    def hang_up(self, reason: str) -> None:
        """Requests under way fail."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        if self._connection is not None:
            self._connection.channel.drop(reason)

    async def send(self, address: tuple[str, int], request: Message) -> Message:
        """Raises NotDoneError, or KafkaError if there is no response or the outcome is unknown."""
        connection = await self._connected(address)
        answer = await self._ask(connection, request, ApiKey(request.API_KEY))
        if has_error(answer, ErrorCode.NOT_CONTROLLER):
            raise NotDoneError(f"{connection.channel.address} is not the active controller")
        return answer

    async def forward(
        self, address: tuple[str, int], request: Message, version: int, peer: "Peer"
    ) -> Message:
        """Sends a client's request in an envelope."""
        connection = await self._connected(address)
        api_key = ApiKey(request.API_KEY)
        answer = await self._ask(connection, wrapped(request, version, peer), api_key)
        assert isinstance(answer, EnvelopeResponse)
        code = error_code(answer.error_code)
        if code is ErrorCode.NOT_CONTROLLER:
            raise NotDoneError(f"{connection.channel.address} is not the active controller")
        if code is ErrorCode.UNSUPPORTED_VERSION:
            detail = f"the controller does not serve {api_key.name} version {version}"
            raise KafkaError(code, detail)
        # The client is not to blame if the nodes disagree.
        if code is not ErrorCode.NONE:
            detail = (
                f"the controller at {connection.channel.address} refused the envelope: {code.name}"
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
        try:
            return unwrapped_response(answer.response_data or b"", api_key, version)
        except MalformedRequestError as error:
            detail = f"the controller at {connection.channel.address}: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, detail) from None

    async def _connected(self, host_and_port: tuple[str, int]) -> NegotiatedChannel:
        address = Address(*host_and_port)
        async with self._one_at_a_time:
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
            self._connection = await self._opened(address, options)
            return self._connection

    async def _opened(self, address: Address, options: ChannelOptions) -> NegotiatedChannel:
        opening = self._opening = self._tasks.start(
            NegotiatedChannel.open(address, self._clock, options),
            f"connect to {address}",
            expects=(ChannelError,),
        )
        try:
            opened: NegotiatedChannel = await opening
        except ChannelError as error:
            raise NotDoneError(str(error)) from None
        except asyncio.CancelledError:
            if self._opening is opening:
                # The caller is cancelled.
                raise
            raise NotDoneError(f"{address} is no longer needed") from None
        finally:
            self._opening = None
        return opened

    async def _ask(
        self, connection: NegotiatedChannel, request: Message, api_key: ApiKey
    ) -> Message:
        """`api_key`: that of the request itself, or of the one in the envelope."""
        if connection.channel.is_closed:
            raise NotDoneError("the connection to the controller was lost")
        asked = ApiKey(request.API_KEY)
        version = connection.version_of(asked)
        if version is None:
            detail = f"{connection.channel.address} does not serve {asked.name}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
        try:
            return await connection.channel.ask(
                request, response_class(asked), version, timeout_ms=self._patience_ms()
            )
        except ChannelError as error:
            if api_key in _REPEATABLE:
                raise NotDoneError(str(error)) from None
            detail = f"{error}; the controller may have done it"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None

    def _patience_ms(self) -> float:
        limit_ms = self._settings.current.controller_socket_timeout_ms
        return limit_ms if self._attempt_ms is None else min(self._attempt_ms(), limit_ms)
