"""A broker's life as the controller sees it: it registers, catches up with the metadata, is
unfenced, keeps its session alive with heartbeats, and requests controlled shutdown before it
stops.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.broker.server.context import ConfigHolder, ControllerChannel
from moldau.core.controller.features import supported_features
from moldau.core.metadata.image import Endpoint
from moldau.core.metadata.levels import CORDONED_DIRECTORIES_FROM, DIRECTORIES_FROM
from moldau.frozen import frozen
from moldau.net.clock import Clock
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from moldau.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from moldau.types import NO_BROKER_EPOCH, BrokerId, Uuid

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.config.broker import BrokerConfig

_log = logging.getLogger(__name__)

_FIRST_RETRY_MS = 20
_SHUTDOWN_RETRY_MS = 50
# Retrying a registration does not help.
_REGISTRATION_FINAL_ERRORS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
}
# Retrying the request for controlled shutdown does not help: the broker was unregistered, the
# metadata cannot be written, or no controller answered for a whole session.
_SHUTDOWN_FINAL_ERRORS = {
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}


class LifecycleState(Enum):
    STARTING = auto()
    """It is not registered, or its metadata is older than its registration."""
    RECOVERY = auto()
    """Has the metadata, but is fenced."""
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    STOPPED = auto()


@frozen(kw_only=True)
class BrokerIdentity:
    """The identity that a broker registers with."""

    node_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    """Random; a new one for each start."""
    directories: Mapping[str, Uuid]
    """Path -> id of the log directories that are online."""
    previous_epoch: int = NO_BROKER_EPOCH
    """The broker epoch of the last clean shutdown."""


@dataclass(slots=True, eq=False, repr=False)
class _Milestones:
    is_registered: asyncio.Event = field(default_factory=asyncio.Event)
    is_caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    is_unfenced: asyncio.Event = field(default_factory=asyncio.Event)
    may_stop: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The lifecycle has ended: no further milestone will be reached."""


class BrokerLifecycle:
    def __init__(
        self,
        identity: BrokerIdentity,
        channel: ControllerChannel,
        metadata: "MetadataFeed",
        settings: ConfigHolder,
        clock: Clock,
    ) -> None:
        self.state = LifecycleState.STARTING
        self.broker_epoch = NO_BROKER_EPOCH
        self._identity = identity
        self._channel = channel
        self._metadata = metadata
        self._settings = settings
        self._clock = clock
        self._tasks = Tasks(are_measured=True)
        self._milestones = _Milestones()
        self._wake = asyncio.Event()
        self._requested_shutdown = False
        """Whether the latest request to the controller was for controlled shutdown."""
        self._wants_unfence = False
        self._offline_directories: dict[Uuid, None] = {}
        self._retry_ms = _FIRST_RETRY_MS
        self._refusal: KafkaError | None = None
        self._endpoints: Sequence[Endpoint] = ()
        self._registered_endpoints: Sequence[Endpoint] = ()

    async def start(self) -> None:
        """Returns when the broker is registered and its metadata includes the registration. Raises
        KafkaError if that does not happen in time.
        """
        _ = self._tasks.start(self._run(), "broker-lifecycle")
        timeout_ms = self._settings.current.initial_broker_registration_timeout_ms
        await self._reach(self._milestones.is_caught_up, timeout_ms, "register")

    async def unfence(self) -> None:
        """Declares the broker ready to serve; returns when the controller agrees."""
        self._wants_unfence = True
        self._wake.set()
        timeout_ms = self._settings.current.initial_broker_registration_timeout_ms
        await self._reach(self._milestones.is_unfenced, timeout_ms, "be unfenced")

    def advertise(self, endpoints: Sequence[Endpoint]) -> None:
        """Sets the endpoints where clients find this broker. If they change, it registers again
        under the same epoch, which is allowed at any time.
        """
        self._endpoints = endpoints
        self._wake.set()

    async def leave(self, timeout_ms: int) -> None:
        """Controlled shutdown. Raises KafkaError if the controller does not permit it in time."""
        if self.state is not LifecycleState.RUNNING:
            return
        self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        self._wake.set()
        await self._reach(self._milestones.may_stop, timeout_ms, "stop")

    async def close(self) -> None:
        """Stops the heartbeats."""
        self.state = LifecycleState.STOPPED
        await self._tasks.close()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Reports the directory to the controller with a heartbeat, which is sent at once."""
        self._offline_directories[directory_id] = None
        self._wake.set()

    def settings_changed(self, before: "BrokerConfig", after: "BrokerConfig") -> None:
        """Reports newly cordoned directories to the controller with a heartbeat."""
        if before.cordoned_log_dirs != after.cordoned_log_dirs:
            self._wake.set()

    async def _reach(self, milestone: asyncio.Event, timeout_ms: int, what: str) -> None:
        self._milestones.has_ended.clear()
        ends = (milestone, self._milestones.has_ended)
        waiting = [self._tasks.start(end.wait(), f"waits to {what}") for end in ends]
        timer = self._clock.call_later(timeout_ms, self._milestones.has_ended.set)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for task in waiting:
                task.cancel()
        if not milestone.is_set():
            reason = f": {self._refusal}" if self._refusal is not None else " in time"
            code = ErrorCode.REQUEST_TIMED_OUT if self._refusal is None else self._refusal.code
            raise KafkaError(code, f"broker {self._identity.node_id} could not {what}{reason}")

    async def _run(self) -> None:
        while self.state is not LifecycleState.STOPPED:
            # Events from here on belong to the next iteration.
            self._wake.clear()
            try:
                delay_ms = await self._communicate()
                self._retry_ms = _FIRST_RETRY_MS
                self._refusal = None
            except KafkaError as error:
                delay_ms = self._next_retry(error)
            timer = self._clock.call_later(delay_ms, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    def _next_retry(self, error: KafkaError) -> int:
        if self._refusal is None or error.code is not self._refusal.code:
            broker_id, is_unregistered = self._identity.node_id, self._is_unregistered(error)
            advice = "; it was unregistered, restart it to register it again" * is_unregistered
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                _log.warning("broker %s does not reach the controller: %s", broker_id, error.detail)
            else:
                _log.warning("the controller refuses broker %s: %s%s", broker_id, error, advice)
        self._refusal = error
        final_errors = (
            _SHUTDOWN_FINAL_ERRORS if self._requested_shutdown else _REGISTRATION_FINAL_ERRORS
        )
        if error.code in final_errors:
            self._milestones.has_ended.set()
        delay_ms = self._retry_ms
        interval_ms = self._settings.current.broker_heartbeat_interval_ms
        self._retry_ms = min(2 * self._retry_ms, interval_ms)
        return delay_ms

    def _is_unregistered(self, error: KafkaError) -> bool:
        is_known = self._identity.node_id in self._metadata.image.brokers
        return error.code is ErrorCode.STALE_BROKER_EPOCH and not is_known

    async def _communicate(self) -> int:
        """Returns the time until the next heartbeat or registration, in milliseconds."""
        self._requested_shutdown = False
        is_registered = self._milestones.is_registered.is_set()
        if not is_registered or self._endpoints_changed() or self._lacks_directories():
            await self._register()
            return 0
        response = await self._heartbeat()
        return self._apply_response(response)

    def _endpoints_changed(self) -> bool:
        return self._registered_endpoints != self._endpoints

    def _lacks_directories(self) -> bool:
        """Whether the broker registered before metadata.version supported log directories."""
        image = self._metadata.image
        broker = image.brokers.get(self._identity.node_id)
        return (
            (image.metadata_version or 0) >= DIRECTORIES_FROM
            and broker is not None
            and broker.epoch == self.broker_epoch
            and not broker.log_directories
        )

    async def _register(self) -> None:
        identity, endpoints = self._identity, self._endpoints
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features(self._settings.current).items()
            ],
            rack=self._settings.current.broker_rack,
            log_dirs=list(identity.directories.values()),
            previous_broker_epoch=identity.previous_epoch,
        )
        response = await self._channel.send(request)
        assert isinstance(response, BrokerRegistrationResponse)
        _raise_for(response.error_code)
        self.broker_epoch = response.broker_epoch
        self._registered_endpoints = endpoints
        self._milestones.is_registered.set()
        _log.info("broker %s is registered, epoch %s", identity.node_id, self.broker_epoch)

    async def _heartbeat(self) -> BrokerHeartbeatResponse:
        self._requested_shutdown = self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_fence=not self._wants_unfence,
            want_shut_down=self._requested_shutdown,
            offline_log_dirs=list(self._offline_directories),
        )
        level = self._metadata.image.metadata_version or 0
        if self._milestones.is_caught_up.is_set() and level >= CORDONED_DIRECTORIES_FROM:
            request.cordoned_log_dirs = self._cordoned()
        # After that the session is over, and the answer to this heartbeat means nothing.
        session_ms = self._settings.current.broker_session_timeout_ms
        try:
            async with self._clock.timeout(session_ms):
                response = await self._channel.send(request)
        except TimeoutError:
            detail = f"no response to a heartbeat in {session_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        assert isinstance(response, BrokerHeartbeatResponse)
        _raise_for(response.error_code)
        return response

    def _cordoned(self) -> list[Uuid]:
        cordoned = self._settings.current.cordoned_log_dirs
        paths = {Path(each) for each in cordoned}
        directories = self._identity.directories
        return [
            directory_id
            for path, directory_id in directories.items()
            if "*" in cordoned or Path(path) in paths
        ]

    def _apply_response(self, response: BrokerHeartbeatResponse) -> int:
        interval_ms = self._settings.current.broker_heartbeat_interval_ms
        if self.state is LifecycleState.STARTING:
            if not response.is_caught_up:
                return _FIRST_RETRY_MS
            self.state = LifecycleState.RECOVERY
            self._milestones.is_caught_up.set()
        if self.state is LifecycleState.RECOVERY and not response.is_fenced:
            self.state = LifecycleState.RUNNING
            self._milestones.is_unfenced.set()
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._milestones.may_stop.set()
            else:
                return min(_SHUTDOWN_RETRY_MS, interval_ms)
        return interval_ms


def _raise_for(number: int) -> None:
    if number != ErrorCode.NONE:
        code = error_code(number)
        detail = "" if code == number else f"a newer controller sent error code {number}"
        raise KafkaError(code, detail)
