"""The parts that follow the cluster's metadata: every node has them, whatever its roles."""

from typing import TYPE_CHECKING

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller.controller_channel import Route
from moldau.broker.controller.local_controller import LocalController
from moldau.broker.node.settings import Settings
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.snapshot_maker import SnapshotMaker
from moldau.broker.quorum.voter_connections import VoterConnections
from moldau.net.chance import random_uuid

if TYPE_CHECKING:
    from moldau.broker.node.node import Node
    from moldau.broker.node.startup import Directories


class MetadataParts:
    def __init__(self, node: "Node", directories: "Directories") -> None:
        self._node = node
        config, clock = node.config, node.clock
        self.directories = directories
        self.settings = Settings(config)
        self.feed = MetadataFeed()
        self.feed.subscribe(self.settings.apply)
        self.quorum = QuorumNode(
            directories.metadata,
            config,
            clock,
            node.fail,
            chance=node.host.chance,
            network=VoterConnections(config, directories.cluster_id, clock),
        )
        self.quorum.add_listener(self.feed)
        self.snapshots = SnapshotMaker(self.quorum, config, clock)
        self.feed.subscribe(self.snapshots.image_changed)
        self.incarnation_id = random_uuid(node.host.chance)
        """Names this run of the node."""

    def route(self, own: LocalController | None = None) -> Route:
        """The way to the active controller. `own` is the controller of this node."""
        return Route(
            node_id=self._node.config.node_id,
            quorum=self.quorum,
            settings=self.settings,
            clock=self._node.clock,
            local=own,
        )

    async def stop(self) -> None:
        await self.snapshots.stop()
        await self.quorum.stop()
