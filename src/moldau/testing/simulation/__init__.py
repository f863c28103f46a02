"""Whole nodes in one thread and without a wait: a `Simulation` has machines with a disk, an address
and a clock each; a `SimulatedNode` is the shipped node on one of them, and `simulated_cluster`
makes those of a cluster. Time is virtual, the network and the disks are in memory, and everything
follows from a seed, also what fails and when.

    simulation = Simulation(7)
    node = SimulatedNode(simulation.machine())

    async def story() -> None:
        await node.start()
        ...  # connect to node.address and send requests
        node.machine.cut_power()
        await node.start()

    simulation.run(story())

`simulation.trace.checksum` is equal for two runs of the same seed; `simulation.problems` has the
errors that no code has foreseen. What is simulated and what is not: docs/explanation/simulation.md.
"""

from moldau.testing.simulation.clock import SimulatedClock
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.loop import NothingLeftError
from moldau.testing.simulation.machine import Machine, ProcessDiedError
from moldau.testing.simulation.network import NetworkFaults
from moldau.testing.simulation.node import SimulatedNode, simulated_cluster
from moldau.testing.simulation.simulation import Simulation

__all__ = [
    "Latency",
    "Machine",
    "NetworkFaults",
    "NothingLeftError",
    "ProcessDiedError",
    "SimulatedClock",
    "SimulatedNode",
    "Simulation",
    "simulated_cluster",
]
