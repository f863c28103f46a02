"""The parts of a node with the controller role."""

from typing import TYPE_CHECKING

from moldau.broker.controller.controller_channel import ActiveControllerChannel
from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.controller.local_controller import LocalController
from moldau.broker.controller.registration import ControllerRegistration
from moldau.broker.controller_handlers.table import controller_table
from moldau.broker.server.context import ControllerServices
from moldau.broker.server.dispatch import Dispatcher
from moldau.core.controller.machine import Controller
from moldau.net.chance import random_uuid

if TYPE_CHECKING:
    from moldau.broker.node.metadata_parts import MetadataParts
    from moldau.broker.node.node import Node


class ControllerParts:
    def __init__(self, node: "Node", metadata: "MetadataParts") -> None:
        self._node = node
        directories = self._directories = metadata.directories
        self._quorum = metadata.quorum
        self.controller = ControllerNode(
            metadata.quorum,
            metadata.feed,
            metadata.settings,
            node.clock,
            Controller(
                node.config,
                directories.cluster_id,
                node.host.chance,
                metadata.incarnation_id if node.config.is_broker else None,
            ),
        )
        metadata.quorum.add_listener(self.controller)
        self.services = ControllerServices(
            node_id=node.config.node_id,
            cluster_id=directories.cluster_id,
            clock=node.clock,
            settings=metadata.settings,
            metadata=metadata.feed,
            metrics=node.metrics,
            budget=node.budget,
            quorum=metadata.quorum,
            controller=self.controller,
        )
        self.route = metadata.route(LocalController(self.controller))
        self._channel = ActiveControllerChannel(self.route, "registration")
        self._registration = ControllerRegistration(
            node.config,
            random_uuid(node.host.chance),
            self._channel,
            metadata.feed,
            node.clock,
        )
        self.dispatcher = Dispatcher(self.services, controller_table(), node.metrics.loop)

    async def start(self) -> None:
        """Its listener opens before the quorum has a leader: the other voters need it."""
        await self._node.listeners.serve_controllers(self.dispatcher, self._node.config)
        self._registration.start()

    async def leave(self) -> None:
        """`stop` does: brokers need a controller until they have stopped."""

    async def stop(self) -> None:
        """Hands the quorum over, and decides until it has."""
        await self._quorum.resign()
        await self._registration.close()
        self._channel.close()
        self.controller.close()

    async def close(self) -> None:
        if not self._node.config.is_broker:
            # The log directories were not used.
            self._directories.restore_markers()
