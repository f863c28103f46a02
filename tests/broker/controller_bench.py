"""A controller over a real quorum and a real directory, with a broker that registers through it; no
network, no replicas. The clock can be moved.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from broker.metadata_node import CLUSTER, config_for, formatted

from moldau.broker.cluster.lifecycle import BrokerIdentity, BrokerLifecycle
from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.cluster.topic_creation import TopicCreation
from moldau.broker.controller.controller_channel import (
    ActiveControllerChannel,
    ClientRequestChannel,
    Route,
)
from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.controller.local_controller import LocalController
from moldau.broker.controller.registration import ControllerRegistration
from moldau.broker.controller_handlers.table import controller_table
from moldau.broker.handlers.table import broker_table
from moldau.broker.metrics.counters import Metrics
from moldau.broker.node.settings import Settings
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.server.context import (
    AnyContext,
    BrokerServices,
    ControllerContext,
    ControllerServices,
    Peer,
    RequestContext,
)
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.config.standalone import NODE_ID
from moldau.core.controller.machine import Controller
from moldau.core.metadata.image import Endpoint, MetadataImage
from moldau.net.clock import ShiftedClock
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.types import BrokerId, Uuid

PORT = 9092


@dataclass
class Bench:
    directory: LogDirectory
    clock: ShiftedClock
    settings: Settings
    quorum: QuorumNode
    feed: MetadataFeed
    controller: ControllerNode
    channel: ClientRequestChannel
    lifecycle: BrokerLifecycle
    topic_creation: TopicCreation
    failures: list[str] = field(default_factory=list)
    controllers: ActiveControllerChannel = field(init=False)
    controller_versions: Mapping[int, tuple[int, int]] | None = None
    """The versions that the active controller serves, as if it were another node."""

    @property
    def image(self) -> MetadataImage:
        return self.feed.image

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Sends a request as the broker does."""
        return await self.channel.send(request, version)

    async def serve(
        self,
        request: Message,
        version: int | None = None,
        *,
        listener: str = "PLAINTEXT",
        is_large: bool = False,
    ) -> Any:
        """Sends a request as a client does on a listener; raises what the handler raises."""
        if version is None:
            version = request.VERSIONS[1]
        api_key = ApiKey(request.API_KEY)
        peer = Peer(1, listener, "127.0.0.1", 5)
        context: AnyContext
        if listener == "CONTROLLER":
            table = controller_table()
            controller = self._controller_services
            context = ControllerContext(controller, peer, api_key, version, "test", table.versions)
        else:
            table = broker_table()
            context = RequestContext(self._services, peer, api_key, version, "test", table.versions)
        context.is_large = is_large
        outcome: Any = table.handler(api_key)(context, request)
        return await outcome if hasattr(outcome, "__await__") else outcome

    def check(self) -> None:
        """With nothing in flight, the controller decides on the committed image."""
        decided = self.controller.image
        assert (
            replace(
                decided,
                offset=self.image.offset,
                epoch=self.image.epoch,
                timestamp_ms=self.image.timestamp_ms,
            )
            == self.image
        )

    @cached_property
    def _services(self) -> BrokerServices:
        return BrokerServices(
            node_id=BrokerId(NODE_ID),
            cluster_id=CLUSTER,
            clock=self.clock,
            settings=self.settings,
            metadata=self.feed,
            controller=self.channel,
            replicas=cast("Any", None),
            groups=cast("Any", None),
            producer_ids=cast("Any", None),
            transactions=cast("Any", None),
            verification=cast("Any", None),
            fetch_sessions=cast("Any", None),
            topic_creation=self.topic_creation,
            controller_versions=lambda: self.controller_versions,
            deadlines=cast("Any", None),
            workers=cast("Any", None),
            metrics=Metrics(),
            budget=MemoryBudget(lambda: 1 << 30),
            quorum=self.quorum,
        )

    @cached_property
    def _controller_services(self) -> ControllerServices:
        return ControllerServices(
            node_id=BrokerId(NODE_ID),
            cluster_id=CLUSTER,
            clock=self.clock,
            settings=self.settings,
            metadata=self.feed,
            metrics=Metrics(),
            budget=MemoryBudget(lambda: 1 << 30),
            quorum=self.quorum,
            controller=self.controller,
        )


@asynccontextmanager
async def bench(
    path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    filesystem: FileSystem | None = None,
    incarnation: int = 1,
    previous_epoch: int = -1,
    registers: bool = True,
) -> AsyncIterator[Bench]:
    """Formats a new directory, starts the quorum, and lets the broker register and be unfenced."""
    disk = filesystem or DiskFileSystem()
    if not disk.exists(path / "meta.properties"):
        formatted(path, disk)
    config = config_for(path, settings)
    directory = LogDirectory.open(disk, path, cluster_id=CLUSTER, node_id=BrokerId(NODE_ID))
    clock = ShiftedClock()
    holder, feed = Settings(config), MetadataFeed()
    feed.subscribe(holder.apply)
    failures: list[str] = []
    quorum = QuorumNode(directory, config, clock, failures.append)
    own_incarnation = Uuid(bytes([incarnation]) * 16)
    machine = Controller(config, CLUSTER, random.Random(1), own_incarnation)
    controller = ControllerNode(quorum, feed, holder, clock, machine)
    quorum.add_listener(feed)
    quorum.add_listener(controller)
    local, node_id = LocalController(controller), BrokerId(NODE_ID)
    route = Route(node_id=node_id, quorum=quorum, settings=holder, clock=clock, local=local)
    controllers = ActiveControllerChannel(route, "test")
    channel = ClientRequestChannel(controllers, route, feed, partial(asyncio.sleep, 0))
    identity = BrokerIdentity(
        node_id=node_id,
        cluster_id=CLUSTER,
        incarnation_id=own_incarnation,
        directories={str(path): directory.meta.directory_id or Uuid(bytes(16))},
        previous_epoch=previous_epoch,
    )
    lifecycle = BrokerLifecycle(identity, channel, feed, holder, clock)
    lifecycle.advertise([Endpoint("PLAINTEXT", "here", PORT)])
    topic_creation = TopicCreation(channel, holder)
    made = Bench(
        directory, clock, holder, quorum, feed, controller, channel, lifecycle, topic_creation
    )
    made.failures = failures
    made.controllers = controllers
    try:
        await quorum.start()
        await quorum.wait_for_leader()
        if registers:
            await lifecycle.start()
            await lifecycle.unfence()
        yield made
    finally:
        await topic_creation.close()
        await lifecycle.close()
        controller.close()
        await quorum.stop()
        clock.close()
        directory.close()


async def register_controller(node: Bench) -> None:
    """Waits until the controller of the node has registered itself."""
    registration = ControllerRegistration(
        node.settings.current, Uuid(b"c" * 16), node.controllers, node.feed, node.clock
    )
    registration.start()
    await node.feed.wait_until(lambda image: NODE_ID in image.controllers)
    await registration.close()
