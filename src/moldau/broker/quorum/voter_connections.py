"""The quorum's requests to other nodes, over TCP. Each destination has one connection and at most
one request under way. A newer request gives the older one up: if that was sent already, with its
connection, since the newer one must not wait for its response.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from moldau.broker.quorum.quorum_network import OnEvent
from moldau.config.broker import BrokerConfig
from moldau.core.quorum.events import NotDelivered, Responded
from moldau.core.quorum.messages.parties import Sender
from moldau.core.quorum.messages.translation import API_OF, read_response, request_message
from moldau.core.quorum.rpc import Destination, Failure, Request
from moldau.net.clock import Clock
from moldau.net.negotiated_channel import NegotiatedChannel
from moldau.net.request_channel import Address, ChannelError, ChannelOptions, NothingListensError
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.wire.schema import Message

_log = logging.getLogger(__name__)

# As in Kafka: the pause before the next attempt to connect doubles with each failure.
_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 500
_DOUBLINGS_MAX = 20
_CONNECTIONS_MAX = 100
"""More than any cluster has voters. A request to add a voter can name any address."""


class _Setup(NamedTuple):
    """Shared by all connections."""

    listener: str
    sender: Sender
    client_id: str
    connect_timeout_ms: int
    connect_timeout_max_ms: int
    clock: Clock
    tasks: Tasks
    deliver: Callable[[Responded | NotDelivered], None]


class _Pending(NamedTuple):
    api_key: ApiKey
    correlation: int
    request: Request
    due_ms: float
    """It is not sent later: the machine has given it up by then."""


class VoterConnections:
    """A QuorumNetwork."""

    def __init__(self, config: BrokerConfig, cluster_id: str, clock: Clock) -> None:
        self._on_event: OnEvent | None = None
        self._setup = _Setup(
            listener=config.controller_names[0],
            sender=Sender(cluster_id, config.controller_quorum_request_timeout_ms),
            client_id=f"raft-client-{config.node_id}",
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            connect_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            clock=clock,
            tasks=Tasks(),
            deliver=self._deliver,
        )
        self._by_id: dict[int, _Connection] = {}
        """The most recently used last."""

    def start(self, on_event: OnEvent) -> None:
        self._on_event = on_event

    def send(self, destination: Destination, correlation: int, request: Request) -> None:
        if self._on_event is None:
            return
        address = Address(destination.host, destination.port)
        connection = self._by_id.pop(destination.node_id, None)
        if connection is not None and connection.address != address:
            connection.close()
            connection = None
        if connection is None:
            self._make_room()
            connection = _Connection(address, self._setup)
        self._by_id[destination.node_id] = connection
        connection.send(correlation, request)

    def _make_room(self) -> None:
        while len(self._by_id) >= _CONNECTIONS_MAX:
            oldest = self._by_id.pop(next(iter(self._by_id)))
            oldest.give_up()
            oldest.close()

    async def close(self) -> None:
        self._on_event = None
        for connection in self._by_id.values():
            connection.close()
        self._by_id.clear()
        await self._setup.tasks.close()

    def _deliver(self, event: Responded | NotDelivered) -> None:
        if self._on_event is not None:
            self._on_event(event)


class _Connection:
    """The connection to one address. It is made for the first request, and again after it broke."""

    def __init__(self, address: Address, setup: _Setup) -> None:
        self.address = address
        self._setup = setup
        self._channel: NegotiatedChannel | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pending: _Pending | None = None
        self._is_sent = False
        self._is_closed = False
        self._failures = 0
        """Attempts to connect since the last that succeeded."""
        self._retry_ms = 0.0
        self._noted = ""

    def send(self, correlation: int, request: Request) -> None:
        if self._is_sent:
            self._hang_up("a newer request replaces the one under way")
        setup = self._setup
        due_ms = setup.clock.mono_ms() + setup.sender.request_timeout_ms
        self._pending = _Pending(API_OF[type(request)], correlation, request, due_ms)
        if self._connecting is not None:
            return
        if self._channel is not None and self._channel.channel.is_free:
            self._post(self._channel, self._pending)
        else:
            self._channel = None
            self._connecting = setup.tasks.start(self._connect(), f"connect to {self.address}")

    def give_up(self) -> None:
        """Reports that the request under way will have no response."""
        pending, self._pending = self._pending, None
        if pending is not None:
            lost = NotDelivered(pending.correlation, Failure.LOST)
            asyncio.get_running_loop().call_soon(self._setup.deliver, lost)

    def close(self) -> None:
        """No event comes afterwards."""
        self._is_closed, self._pending = True, None
        if self._connecting is not None:
            self._connecting.cancel()
        self._hang_up("the quorum no longer needs the connection")

    def _hang_up(self, reason: str) -> None:
        self._is_sent = False
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.channel.drop(reason)

    # Connecting

    async def _connect(self) -> None:
        setup = self._setup
        try:
            pause_ms = self._retry_ms - setup.clock.mono_ms()
            if pause_ms > 0:
                await setup.clock.sleep(pause_ms)
            channel = await NegotiatedChannel.open(self.address, setup.clock, self._options())
        except ChannelError as error:
            self._connecting = None
            self._not_connected(error)
            return
        self._connecting = None
        if self._is_closed:
            channel.channel.drop("it was made too late")
            return
        self._failures = 0
        self._channel = channel
        pending = self._pending
        if pending is None:
            return
        if setup.clock.mono_ms() >= pending.due_ms:
            self._fail(pending, Failure.LOST)
        else:
            self._post(channel, pending)

    def _options(self) -> ChannelOptions:
        setup = self._setup
        doubled_ms = setup.connect_timeout_ms << min(self._failures, _DOUBLINGS_MAX)
        return ChannelOptions(
            client_id=setup.client_id,
            connect_timeout_ms=min(doubled_ms, setup.connect_timeout_max_ms),
            request_timeout_ms=setup.sender.request_timeout_ms,
        )

    def _not_connected(self, error: ChannelError) -> None:
        pause_ms = min(_RECONNECT_MS << min(self._failures, _DOUBLINGS_MAX), _RECONNECT_MAX_MS)
        self._failures += 1
        self._retry_ms = self._setup.clock.mono_ms() + pause_ms
        self._note(str(error))
        is_refused = isinstance(error, NothingListensError)
        if self._pending is not None:
            self._fail(self._pending, Failure.REFUSED if is_refused else Failure.LOST)

    # The request under way

    def _post(self, channel: NegotiatedChannel, pending: _Pending) -> None:
        version = channel.version_of(pending.api_key)
        if version is None:
            self._fail_soon(pending, Failure.UNSUPPORTED)
            return

        def answered(answer: Message | ChannelError) -> None:
            self._answered(pending, answer)

        try:
            message = request_message(pending.request, version, self._setup.sender)
            channel.channel.post(message, response_class(pending.api_key), version, answered)
        except KafkaError:
            # The version cannot express the request.
            self._fail_soon(pending, Failure.UNSUPPORTED)
        else:
            self._is_sent = True

    def _answered(self, pending: _Pending, answer: Message | ChannelError) -> None:
        if self._pending is not pending:
            return
        if isinstance(answer, ChannelError):
            self._note(str(answer))
            self._fail(pending, Failure.LOST)
            return
        try:
            response = read_response(answer, self._setup.listener)
        except KafkaError as error:
            self._note(f"{self.address} answered {pending.api_key.name} with {error}")
            is_unsupported = error.code is ErrorCode.UNSUPPORTED_VERSION
            self._fail(pending, Failure.UNSUPPORTED if is_unsupported else Failure.LOST)
            return
        if self._noted:
            self._noted = ""
            _log.info("%s answers the quorum's requests again", self.address)
        self._pending, self._is_sent = None, False
        self._setup.deliver(Responded(pending.correlation, response))

    def _fail_soon(self, pending: _Pending, failure: Failure) -> None:
        asyncio.get_running_loop().call_soon(self._fail, pending, failure)

    def _fail(self, pending: _Pending, failure: Failure) -> None:
        if self._pending is pending:
            self._pending, self._is_sent = None, False
            self._setup.deliver(NotDelivered(pending.correlation, failure))

    def _note(self, problem: str) -> None:
        """For the node's log, once until it changes."""
        if problem != self._noted:
            self._noted = problem
            _log.info("a request of the quorum failed: %s", problem)
