"""The shipped node on a simulated machine, alone or in a cluster."""

from collections.abc import Mapping, Sequence

from moldau.broker.node.formatting import FormatOptions, format_node, formatted_directories
from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.chance import random_uuid
from moldau.testing.simulation.machine import Machine
from moldau.testing.simulation.simulation import Simulation
from moldau.types import uuid_text

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
SMALL = {
    "moldau.reserve.bytes": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}
"""Settings that keep a simulated node small. Any of them can be overridden."""
_ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_DIRECTORY = "/data"


class SimulatedNode:
    """The node of a machine. It formats itself at its first start.

    Args:
        machine: Where it runs; one node at a time.
        settings: Kafka's broker settings, by name.
        format_options: How it is formatted, if it is not a cluster of its own; then `settings` has
            its roles and its listeners.
    """

    def __init__(
        self,
        machine: Machine,
        settings: Mapping[str, str] | None = None,
        *,
        format_options: FormatOptions | None = None,
    ) -> None:
        self.machine = machine
        self.node: Node | None = None
        self.address = machine.address, CLIENT_PORT
        self._format_options = format_options
        base = {"log.dirs": _DIRECTORY}
        if format_options is None:
            base = standalone_properties(_DIRECTORY, host=machine.address, port=CLIENT_PORT)
        self._properties = base | SMALL | dict(settings or {})

    @property
    def node_id(self) -> int:
        return int(self._properties["node.id"])

    @property
    def is_broker(self) -> bool:
        return "broker" in self._properties["process.roles"]

    @property
    def is_controller(self) -> bool:
        return "controller" in self._properties["process.roles"]

    async def start(self) -> None:
        """Returns when it takes requests. Raises ProcessDiedError if it dies before, and what
        `Node.start` raises.
        """
        self.node = None
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
        clock = machine.new_clock()
        config = BrokerConfig.parse(self._properties)
        how = self._format_options
        if how is not None and not formatted_directories(machine.disk, config):
            format_node(machine.disk, config, how, clock.wall_ms(), machine.chance)
        options = NodeOptions(formats_itself=how is None)
        self.node = Node(config, options, clock=clock, host=host)
        await self.node.start()

    def _running(self) -> Node:
        assert self.node is not None, "the node was not started"
        return self.node


def simulated_cluster(
    simulation: Simulation,
    roles: Sequence[str],
    settings: Mapping[str, str] | None = None,
    *,
    static_voters: bool = False,
) -> list[SimulatedNode]:
    """The nodes of one cluster, each on a machine of its own, with ids from 1 on; none is started
    yet. `roles` has the value of process.roles for each of them.
    """
    chance = simulation.chance_for("cluster")
    cluster_id = uuid_text(random_uuid(chance))
    machines = [simulation.machine() for _ in roles]
    voters = {
        node_id: (machine.address, uuid_text(random_uuid(chance)))
        for node_id, (role, machine) in enumerate(zip(roles, machines, strict=True), 1)
        if "controller" in role
    }
    if static_voters:
        initial = None
        places = [f"{node_id}@{host}:{CONTROLLER_PORT}" for node_id, (host, _) in voters.items()]
        quorum = {"controller.quorum.voters": ",".join(places)}
    else:
        initial = ",".join(
            f"{node_id}@{host}:{CONTROLLER_PORT}:{directory}"
            for node_id, (host, directory) in voters.items()
        )
        places = [f"{host}:{CONTROLLER_PORT}" for host, _ in voters.values()]
        quorum = {"controller.quorum.bootstrap.servers": ",".join(places)}
    return [
        SimulatedNode(
            machine,
            _member(role, node_id, machine.address) | quorum | dict(settings or {}),
            format_options=FormatOptions(
                cluster_id=cluster_id, initial_controllers=initial if node_id in voters else None
            ),
        )
        for node_id, (role, machine) in enumerate(zip(roles, machines, strict=True), 1)
    ]


def _member(role: str, node_id: int, host: str) -> dict[str, str]:
    listeners = [f"PLAINTEXT://{host}:{CLIENT_PORT}"] if "broker" in role else []
    if "controller" in role:
        listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
    return _ONE_REPLICA | {
        "process.roles": role,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
