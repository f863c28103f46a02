"""Clusters for tests: each node is `moldau start` with a server.properties of its own, in a process
of its own. They can be started in any order, killed, and stopped.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.running_node import RunningNode, free_port
from support.waiting import wait_for

from moldau import Admin
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.client.admin.quorum import DescribedQuorum
from moldau.config.broker import BrokerConfig
from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.net.clock import Clock
from moldau.protocol.errors import MoldauError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import Uuid, uuid_text

ADMIN_TIMEOUT_MS = 30_000
QUICK = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "moldau.reserve.bytes": "0",
}


@dataclass
class ClusterNode:
    node_id: int
    roles: str
    client_port: int
    controller_port: int
    directory_id: Uuid
    process: RunningNode

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_running(self) -> bool:
        return self.process.process is not None

    @property
    def address(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.client_port}"


@dataclass
class RunningCluster:
    folder: Path
    nodes: dict[int, ClusterNode] = field(default_factory=dict)

    def start(self, *node_ids: int) -> None:
        """Starts these nodes at the same time, or all, and waits until they are ready."""
        for node_id in node_ids or tuple(self.nodes):
            self.nodes[node_id].process.launch()
        for node_id in node_ids or tuple(self.nodes):
            self.wait_ready(node_id)

    def wait_ready(self, node_id: int) -> None:
        node = self.nodes[node_id].process
        process = node.process
        assert process is not None

        def is_ready() -> bool:
            assert process.poll() is None, f"node {node_id} ended: {node.errors[-3000:]}"
            return (node.folder / "ready").exists()

        wait_for(is_ready, f"node {node_id} to be ready", 60)

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].process.kill()

    def stop(self, *node_ids: int) -> list[int]:
        """Their exit statuses. They stop one after the other."""
        return [self.nodes[node_id].process.stop() for node_id in node_ids]

    @property
    def bootstrap(self) -> str:
        """The addresses of the running brokers."""
        nodes = self.nodes.values()
        return ",".join(each.address for each in nodes if each.is_broker and each.is_running)

    def admin(self, at: str | None = None) -> Admin:
        """Through any running broker, or through the one `at`."""
        return Admin(at or self.bootstrap, default_api_timeout_ms=ADMIN_TIMEOUT_MS)

    def quorum(self, at: str | None = None) -> DescribedQuorum:
        with self.admin(at) as admin:
            return admin.describe_quorum()

    def wait_for_leader(self, *, other_than: int = -1, at: str | None = None) -> int:
        """The id of the active controller."""
        found = -1

        def is_led() -> bool:
            nonlocal found
            with suppress(MoldauError):
                found = self.quorum(at).leader_id
            return found not in {-1, other_than}

        wait_for(is_led, "an active controller", 60)
        return found


@contextmanager
def running_cluster(
    folder: Path,
    roles: Sequence[str],
    settings: Mapping[str, str] | None = None,
    *,
    static_voters: bool = False,
) -> Iterator[RunningCluster]:
    """Formats one node for each entry of `roles`, with ids from 1 on. None is started yet."""
    cluster = RunningCluster(folder)
    for node_id, role in enumerate(roles, 1):
        node_folder = folder / f"node-{node_id}"
        node_folder.mkdir()
        config = node_folder / "server.properties"
        process = RunningNode(node_folder, {}, config)
        cluster.nodes[node_id] = ClusterNode(
            node_id, role, free_port(), free_port(), random_uuid(SYSTEM_CHANCE), process
        )
    cluster_id = uuid_text(random_uuid(SYSTEM_CHANCE))
    for node in cluster.nodes.values():
        properties = _properties(cluster, node, settings or {}, static_voters=static_voters)
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (node.process.folder / "server.properties").write_text(lines)
        initial = _initial_controllers(cluster) if node.is_controller else None
        options = FormatOptions(
            cluster_id=cluster_id, initial_controllers=None if static_voters else initial
        )
        parsed = BrokerConfig.parse(properties)
        format_node(DiskFileSystem(), parsed, options, Clock().wall_ms())
    try:
        yield cluster
    finally:
        for node in cluster.nodes.values():
            node.process.kill()


def _controllers(cluster: RunningCluster) -> list[ClusterNode]:
    return [node for node in cluster.nodes.values() if node.is_controller]


def _initial_controllers(cluster: RunningCluster) -> str:
    return ",".join(
        f"{each.node_id}@127.0.0.1:{each.controller_port}:{uuid_text(each.directory_id)}"
        for each in _controllers(cluster)
    )


def _properties(
    cluster: RunningCluster,
    node: ClusterNode,
    settings: Mapping[str, str],
    *,
    static_voters: bool,
) -> dict[str, Any]:
    listeners = []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://127.0.0.1:{node.client_port}")
    if node.is_controller:
        listeners.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
    controllers = _controllers(cluster)
    if static_voters:
        name = "controller.quorum.voters"
        servers = [f"{each.node_id}@127.0.0.1:{each.controller_port}" for each in controllers]
    else:
        name = "controller.quorum.bootstrap.servers"
        servers = [f"127.0.0.1:{each.controller_port}" for each in controllers]
    return {
        "process.roles": node.roles,
        "node.id": str(node.node_id),
        "log.dirs": str(node.process.log_folder),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        name: ",".join(servers),
        **QUICK,
        **settings,
    }
