"""The shipped node on a simulated machine."""

from collections.abc import Mapping

from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.testing.simulation.machine import Machine

CLIENT_PORT = 9092
SMALL = {
    "moldau.reserve.bytes": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}
"""Settings that keep a simulated node small. Any of them can be overridden."""


class SimulatedNode:
    """The node of a machine. It formats itself at its first start.

    Args:
        machine: Where it runs; one node at a time.
        settings: Kafka's broker settings, by name.
    """

    def __init__(self, machine: Machine, settings: Mapping[str, str] | None = None) -> None:
        self.machine = machine
        self.node: Node | None = None
        self.address = machine.address, CLIENT_PORT
        base = standalone_properties("/data", host=machine.address, port=CLIENT_PORT)
        self._properties = base | SMALL | dict(settings or {})

    async def start(self) -> None:
        """Returns when it takes requests. Raises ProcessDiedError if it dies before, and what
        `Node.start` raises.
        """
        self.machine.start_process()
        await self.machine.run(self._start())

    async def stop(self) -> None:
        """The node ends as by SIGTERM."""
        await self.machine.run(self._running().stop())
        self.machine.exit()
        self.node = None

    async def _start(self) -> None:
        machine = self.machine
        host = Host(
            filesystem=machine.disk,
            network=machine.network,
            chance=machine.chance,
            do_all=map,
        )
        options = NodeOptions(formats_itself=True)
        config = BrokerConfig.parse(self._properties)
        self.node = Node(config, options, clock=machine.new_clock(), host=host)
        await self.node.start()

    def _running(self) -> Node:
        assert self.node is not None, "the node was not started"
        return self.node
