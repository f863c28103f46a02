"""Keeps this controller registered at the active one, with its endpoints and the features that it
supports (KIP-919).
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from moldau.core.controller.features import supported_features
from moldau.core.metadata.levels import CONTROLLER_REGISTRATION_FROM
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.controller.controller_channel import ActiveControllerChannel
    from moldau.config.broker import BrokerConfig
    from moldau.core.metadata.delta import MetadataDelta
    from moldau.core.metadata.image import MetadataImage
    from moldau.net.clock import Clock
    from moldau.types import Uuid

_log = logging.getLogger(__name__)

_FIRST_RETRY_MS = 100
_RETRY_MS_MAX = 10_000


class ControllerRegistration:
    def __init__(
        self,
        config: "BrokerConfig",
        incarnation_id: "Uuid",
        channel: "ActiveControllerChannel",
        metadata: "MetadataFeed",
        clock: "Clock",
    ) -> None:
        """`incarnation_id` is random, and a new one for each start."""
        self._config = config
        self._incarnation_id = incarnation_id
        self._channel = channel
        self._metadata = metadata
        self._clock = clock
        self._tasks = Tasks()
        self._is_due = asyncio.Event()
        self._is_registered = asyncio.Event()
        self._problem = ""

    def start(self) -> None:
        self._metadata.subscribe(self._metadata_changed)
        _ = self._tasks.start(self._run(), "controller-registration")

    async def close(self) -> None:
        await self._tasks.close()

    def _metadata_changed(self, _delta: "MetadataDelta", image: "MetadataImage") -> None:
        if (image.metadata_version or 0) < CONTROLLER_REGISTRATION_FROM:
            return
        registered = image.controllers.get(self._config.node_id)
        if registered is None or registered.incarnation_id != self._incarnation_id:
            self._is_due.set()
            self._is_registered.clear()
        else:
            self._is_due.clear()
            self._is_registered.set()

    async def _run(self) -> None:
        """Its record in the metadata ends the attempts, not a response."""
        retry_ms = _FIRST_RETRY_MS
        while True:
            if not self._is_due.is_set():
                retry_ms = _FIRST_RETRY_MS
                await self._is_due.wait()
            # After a success the record is committed, and only has to arrive here.
            wait_ms = _RETRY_MS_MAX if await self._register() else retry_ms
            retry_ms = min(retry_ms * 2, _RETRY_MS_MAX)
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(wait_ms):
                    await self._is_registered.wait()

    async def _register(self) -> bool:
        try:
            response = await self._channel.send(self._request())
        except KafkaError as error:
            self._complain(str(error))
            return False
        assert isinstance(response, ControllerRegistrationResponse)
        if response.error_code:
            name = error_code(response.error_code).name
            self._complain(f"{name}: {response.error_message}")
            return False
        self._problem = ""
        return True

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            node_id = self._config.node_id
            _log.warning("controller %s is not registered yet: %s", node_id, problem)
        self._problem = problem

    def _request(self) -> ControllerRegistrationRequest:
        config = self._config
        return ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=each.name,
                    host=each.host or "localhost",
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in config.advertised_controller_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features(config).items()
            ],
        )
