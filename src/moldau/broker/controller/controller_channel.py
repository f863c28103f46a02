"""Requests to the active controller, wherever it is: in this process, or across the network. They
are sent again until it answers. After a broken connection, only those are that were not sent or may
be done twice. A controller of ours that lost its leadership refuses only what it did not append or
what may be done twice; one of Apache Kafka refuses all, and they are sent again as Kafka does.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.broker.controller.controller_node import requested_timeout_ms
from moldau.frozen import frozen
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.controller.local_controller import LocalController
    from moldau.broker.controller.remote_controller import RemoteController
    from moldau.broker.server.context import ConfigHolder, Peer
    from moldau.net.clock import Clock, Timer
    from moldau.types import BrokerId

_RETRY_MS = 50
_LOOK_MS = 200
_APPLIED_WAIT_MS_MAX = 5_000
_CHANGES_LOGS = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS}


class NotDoneError(Exception):
    """The request was not served, and may be sent again."""


class KnowsLeader(Protocol):
    """The quorum, as this node sees it."""

    @property
    def leader_id(self) -> "BrokerId": ...

    @property
    def leader_address(self) -> tuple[str, int] | None: ...


@frozen(kw_only=True)
class Route:
    """How a node reaches the active controller."""

    node_id: "BrokerId"
    quorum: KnowsLeader
    settings: "ConfigHolder"
    clock: "Clock"
    local: "LocalController | None" = None
    """The node's own controller."""

    def address(self) -> tuple[str, int] | None:
        """That of the active controller, if it is known and another node."""
        is_own = self.quorum.leader_id == self.node_id
        return None if is_own else self.quorum.leader_address

    def is_over(self, address: tuple[str, int]) -> bool:
        """Whether the controller at this address has a successor."""
        is_known = self.quorum.leader_id == self.node_id or self.quorum.leader_address is not None
        return is_known and self.address() != address


class ActiveControllerChannel:
    """At most one connection: the controller serves its requests one after the other. Requests that
    must not wait for others have a channel of their own.
    """

    def __init__(
        self, route: Route, name: str, attempt_ms: Callable[[], float] | None = None
    ) -> None:
        """`attempt_ms`: see RemoteController."""
        self._route = route
        self._clock = route.clock
        self._client_id = f"node-{route.node_id}-{name}"
        self._attempt_ms = attempt_ms
        self._remote: RemoteController | None = None
        """None until the active controller is another node for the first time."""
        self._is_closed = False

    @property
    def served(self) -> Mapping[int, tuple[int, int]] | None:
        """The versions of each API that the active controller serves, if that is another node and
        there is a connection to it.
        """
        local, remote = self._route.local, self._remote
        is_own = local is not None and local.is_active
        return None if is_own or remote is None else remote.served

    def close(self) -> None:
        """Requests fail from now on, those under way too."""
        self._is_closed = True
        if self._remote is not None:
            self._remote.close()

    async def send(self, request: Message, version: int | None = None) -> Message:
        """Sends a request of this node itself. A refusal is a response, too. Raises KafkaError if
        there is no response.
        """
        return await self._until_answered(request, version, None)

    async def forward(self, request: Message, version: int | None, peer: "Peer") -> Message:
        """Sends the request of a client, or one on its behalf if `version` is None. Raises
        MalformedRequestError if its connection has to be closed.
        """
        return await self._until_answered(request, version, peer)

    async def _until_answered(
        self, request: Message, version: int | None, peer: "Peer | None"
    ) -> Message:
        timeout_ms = self._route.settings.current.request_timeout_ms
        waits_until_ms = self._clock.mono_ms() + min(requested_timeout_ms(request), timeout_ms)
        problem = "there is no active controller"
        try:
            async with self._clock.timeout(timeout_ms):
                while not self._is_closed:
                    try:
                        return await self._attempt(request, version, peer)
                    except NotDoneError as error:
                        problem = str(error)
                    if self._clock.mono_ms() >= waits_until_ms:
                        break
                    await self._pause()
        except TimeoutError:
            # The response to an attempt did not come in time.
            pass
        detail = f"no response from the controller in {timeout_ms} ms: {problem}"
        if self._is_closed:
            detail = "no response from the controller: the node is stopping"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail)

    async def _attempt(self, request: Message, version: int | None, peer: "Peer | None") -> Message:
        local, address = self._route.local, self._route.address()
        if local is not None and local.is_active:
            newest = API_VERSIONS[ApiKey(request.API_KEY)].latest_stable
            try:
                return await local.send(request, newest if version is None else version)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                raise NotDoneError(error.detail) from None
        if address is None:
            raise NotDoneError("there is no active controller")
        remote = self._remote = self._remote or self._new_remote()
        with self._watching(remote, address):
            if peer is None:
                return await remote.send(address, request)
            return await remote.forward(address, request, version, peer)

    @contextlib.contextmanager
    def _watching(self, remote: "RemoteController", address: tuple[str, int]) -> Iterator[None]:
        """Hangs up when another node is elected: one that does not answer may be gone for good.
        Again and again: a request that waits for its turn may have no connection yet.
        """

        timer: Timer

        def look() -> None:
            nonlocal timer
            timer = self._clock.call_later(_LOOK_MS, look)
            if self._route.is_over(address):
                remote.hang_up(address, "another node is the active controller now")

        look()
        try:
            yield
        finally:
            timer.cancel()

    def _new_remote(self) -> "RemoteController":
        # A node alone never needs it.
        from moldau.broker.controller.remote_controller import RemoteController

        return RemoteController(
            self._route.settings,
            self._clock,
            client_id=self._client_id,
            is_over=self._route.is_over,
            attempt_ms=self._attempt_ms,
        )

    async def _pause(self) -> None:
        local = self._route.local
        if local is None or local.is_active:
            await self._clock.sleep(_RETRY_MS)
            return
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(_RETRY_MS):
                await local.wait_active()


class ClientRequestChannel:
    """For the requests of clients, and for topics that are created automatically: when the response
    arrives, this broker sees the change and can serve the topics. It only waits for a while: the
    change itself is committed.
    """

    def __init__(
        self,
        channel: ActiveControllerChannel,
        route: Route,
        metadata: "MetadataFeed",
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`caught_up` waits until the broker has opened the logs that its metadata assigns to
        it.
        """
        self._channel = channel
        self._settings = route.settings
        self._clock = route.clock
        self._metadata = metadata
        self._caught_up = caught_up

    async def send(self, request: Message, version: int | None = None) -> Message:
        return await self._settled(request, await self._channel.send(request, version))

    async def forward(self, request: Message, version: int | None, peer: "Peer") -> Message:
        return await self._settled(request, await self._channel.forward(request, version, peer))

    async def _settled(self, request: Message, response: Message) -> Message:
        if request.API_KEY in _CHANGES_LOGS:
            timeout_ms = self._settings.current.request_timeout_ms
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(min(requested_timeout_ms(request), timeout_ms)):
                    await self._see_change(request, response)
                    await self._caught_up()
        return response

    async def _see_change(self, request: Message, response: Message) -> None:
        from moldau.broker.controller.applied_changes import applied

        is_applied = applied(request, response)
        if is_applied is not None:
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(_APPLIED_WAIT_MS_MAX):
                    await self._metadata.wait_until(is_applied)
