"""Several shipped nodes in one simulation."""

import asyncio

import pytest

from moldau.protocol.errors import MoldauError
from moldau.testing.simulation import Simulation
from moldau.testing.simulation.node import SimulatedNode, simulated_cluster

THREE_AND_TWO = ["controller"] * 3 + ["broker"] * 2


async def start(nodes: list[SimulatedNode]) -> None:
    await asyncio.gather(*[each.start() for each in nodes])


@pytest.mark.parametrize("static_voters", [False, True])
@pytest.mark.parametrize("roles", [THREE_AND_TWO, ["broker,controller"] * 3])
def test_a_cluster_starts_and_every_node_has_the_same_metadata(
    roles: list[str], *, static_voters: bool
) -> None:
    simulation = Simulation(3)
    nodes = simulated_cluster(simulation, roles, static_voters=static_voters)
    brokers = [each for each in nodes if each.is_broker]

    async def story() -> None:
        await start(nodes)
        assert brokers[1].node is not None
        await brokers[1].machine.run(brokers[1].node.create_topic("orders", 2, {}))
        await simulation.pass_time(5)
        images = [each.node.metadata.feed.image for each in nodes if each.node is not None]
        assert len(images) == len(roles)
        assert all(image.topic("orders") is not None for image in images)
        assert [len(image.brokers) for image in images] == [len(brokers)] * len(roles)

    simulation.run(story())
    assert not simulation.problems


def test_a_node_that_fails_while_it_registers_waits_no_longer() -> None:
    """Without the other voters it would wait for a minute."""
    simulation = Simulation(3)
    first, *_ = simulated_cluster(simulation, ["broker,controller"] * 3)

    async def story() -> None:
        starting = asyncio.ensure_future(first.start())
        await simulation.pass_time(5)
        assert not starting.done()
        assert first.node is not None
        first.node.fail("the disk is gone")
        with pytest.raises(MoldauError, match="the disk is gone"):
            await starting
        assert simulation.loop.time() < 12

    simulation.run(story())
    assert not simulation.problems
