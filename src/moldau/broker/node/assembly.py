"""The parts of a running node. Which it has depends on its roles: every node follows the metadata,
a controller decides about it, a broker serves clients.
"""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.node.broker_parts import BrokerParts
from moldau.broker.node.controller_parts import ControllerParts
from moldau.broker.node.metadata_parts import MetadataParts
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.broker.metrics.prometheus import NodeCollector
    from moldau.broker.node.node import Node
    from moldau.broker.node.startup import Directories
    from moldau.broker.replicas.flush_rounds import FlushRounds
    from moldau.broker.server.listener import Listener
    from moldau.net.clock import Timer

_FIRST_RESERVE_MS = 1_000
_NEXT_RESERVE_MS = 60_000


class Role(Protocol):
    """The parts that a role adds to a node."""

    async def start(self) -> None:
        """Returns when the role's listeners are open. Raises MoldauError."""

    async def leave(self) -> None:
        """Hands its duties over to other nodes, in bounded time. Its listeners are still open."""

    async def stop(self) -> None:
        """Ends its work. New clients are not accepted, and the metadata is still followed."""

    async def close(self) -> None:
        """Writes what must outlive the process, and releases the rest."""


class NodeParts:
    def __init__(self, node: "Node", directories: "Directories") -> None:
        self._node = node
        self._reserve_timer: Timer | None = None
        self.directories = directories
        self.metadata = MetadataParts(node, directories)
        self.settings = self.metadata.settings
        self._flush_rounds: list[FlushRounds] = [self.metadata.quorum.flush_rounds]
        self._controller = (
            ControllerParts(node, self.metadata) if node.config.is_controller else None
        )
        self._broker = self._new_broker(node) if node.config.is_broker else None
        self.roles: list[Role] = [
            role for role in (self._controller, self._broker) if role is not None
        ]
        """In the order of the start: a broker may need the controller of its own node."""
        node.turns.after_each = self._let_threads_run

    def _new_broker(self, node: "Node") -> BrokerParts:
        controller = self._controller
        route = self.metadata.route() if controller is None else controller.route
        broker = BrokerParts(node, self.metadata, route)
        self._flush_rounds.append(broker.replicas.flush_rounds)
        return broker

    @property
    def broker(self) -> BrokerParts:
        """Raises MoldauError if the node has no such role."""
        if self._broker is None:
            raise MoldauError(f"node {self._node.config.node_id} is not a broker")
        return self._broker

    def new_collector(self, listeners: "list[Listener]") -> "NodeCollector":
        from moldau.broker.metrics.prometheus import BrokerCollector, NodeCollector

        if self._broker is not None:
            return BrokerCollector(self._broker.services, listeners)
        assert self._controller is not None, "a node has a role"
        return NodeCollector(self._controller.services, listeners)

    def _let_threads_run(self) -> None:
        for rounds in self._flush_rounds:
            rounds.let_threads_run()

    async def start(self) -> None:
        self.directories.release_reserves()
        await self.metadata.quorum.start()
        for role in self.roles:
            await role.start()
        # Not now: the start should not wait for it.
        self._take_reserves_in(_FIRST_RESERVE_MS)

    async def leave(self) -> None:
        for role in reversed(self.roles):
            await role.leave()

    async def stop(self) -> None:
        if self._reserve_timer is not None:
            self._reserve_timer.cancel()
        self.directories.release_reserves()
        for role in reversed(self.roles):
            await role.stop()
        await self.metadata.stop()
        for role in self.roles:
            await role.close()
        self.directories.close()

    def _take_reserves_in(self, delay_ms: int) -> None:
        """Takes reserves of disk space now and then: deleting files on a full disk spends them."""

        def take() -> None:
            self.directories.take_reserves(self._node.config.moldau_reserve_bytes)
            self._take_reserves_in(_NEXT_RESERVE_MS)

        self._reserve_timer = self._node.clock.call_later(delay_ms, take)
