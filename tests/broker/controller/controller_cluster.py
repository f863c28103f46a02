"""A quorum of several voters with a controller on each of them, in one event loop."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

from broker.metadata_node import CLUSTER
from broker.quorum.quorum_cluster import Member, QuorumCluster
from support.waiting import until

from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.node.settings import Settings
from moldau.core.controller.machine import Controller


class ControllerCluster(QuorumCluster):
    def __init__(
        self,
        voters: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        is_static: bool = False,
    ) -> None:
        super().__init__(voters, settings=settings, is_static=is_static)
        self.controllers: dict[int, ControllerNode] = {}
        self.on_assembled = self._add_controller

    def _add_controller(self, member: Member) -> None:
        settings = Settings(member.config)
        member.feed.subscribe(settings.apply)
        machine = Controller(member.config, CLUSTER, Random(member.id))
        controller = ControllerNode(member.quorum, member.feed, settings, member.clock, machine)
        member.quorum.add_listener(controller)
        self.controllers[member.id] = controller

    async def wait_active(self, *, other_than: int | None = None) -> tuple[Member, ControllerNode]:
        """The leader, whose first records are committed, and its controller."""

        def is_active() -> bool:
            leader = self.leader
            return (
                leader is not None
                and leader.id != other_than
                and self.controllers[leader.id].is_active
            )

        await until(is_active)
        leader = self.leader
        assert leader is not None
        await leader.quorum.wait_committed(leader.quorum.last_offset)
        return leader, self.controllers[leader.id]


@asynccontextmanager
async def running_controllers(
    voters: int = 3, *, settings: Mapping[str, str] | None = None, is_static: bool = False
) -> AsyncIterator[ControllerCluster]:
    """All of them are started."""
    cluster = ControllerCluster(voters, settings=settings, is_static=is_static)
    try:
        await cluster.start_all()
        yield cluster
    finally:
        await cluster.close()
