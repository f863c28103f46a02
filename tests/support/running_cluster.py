"""Clusters for tests: each node is `moldau start` with a server.properties of its own, in a process
of its own. They can be started in any order, killed, and stopped.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.namespaces import Network
from support.running_node import RunningNode, free_port
from support.waiting import wait_for

from moldau import Admin
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.cli.shared.server_properties import read_server_properties
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
    host: str = "127.0.0.1"

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
        return f"{self.host}:{self.client_port}"

    @property
    def controller_address(self) -> str:
        return f"{self.host}:{self.controller_port}"

    @property
    def pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid


@dataclass
class RunningCluster:
    folder: Path
    cluster_id: str = field(default_factory=lambda: uuid_text(random_uuid(SYSTEM_CHANCE)))
    has_static_voters: bool = False
    nodes: dict[int, ClusterNode] = field(default_factory=dict)

    @property
    def controllers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    def configure(self, node_id: int, settings: Mapping[str, str]) -> None:
        """Writes its server.properties."""
        properties = _properties(self, self.nodes[node_id], settings)
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.nodes[node_id].process.folder / "server.properties").write_text(lines)

    def format(self, node_id: int, *, is_new_voter: bool = False) -> None:
        """As the settings say. The initial controllers are those that the cluster was made with;
        `is_new_voter`: none, and the directory gets another id.
        """
        node = self.nodes[node_id]
        initial = None
        if node.is_controller and not self.has_static_voters and not is_new_voter:
            initial = _initial_controllers(self)
        options = FormatOptions(
            cluster_id=self.cluster_id,
            initial_controllers=initial,
            no_initial_controllers=is_new_voter,
        )
        config = BrokerConfig.parse(
            read_server_properties(node.process.folder / "server.properties")
        )
        format_node(DiskFileSystem(), config, options, Clock().wall_ms())

    def wipe(self, node_id: int) -> None:
        """Deletes the data of a node that does not run."""
        node = self.nodes[node_id]
        assert not node.is_running
        shutil.rmtree(node.process.log_folder)

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
        return ",".join(each.address for each in self.brokers if each.is_running)

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
    network: Network | None = None,
) -> Iterator[RunningCluster]:
    """Formats one node for each entry of `roles`, with ids from 1 on. None is started yet. With a
    `network`, each runs in its own namespace there.
    """
    cluster = RunningCluster(folder, has_static_voters=static_voters)
    for node_id, role in enumerate(roles, 1):
        cluster.nodes[node_id] = _node(folder / f"node-{node_id}", node_id, role, network)
    for node_id in cluster.nodes:
        cluster.configure(node_id, settings or {})
        cluster.format(node_id)
    try:
        yield cluster
    finally:
        for node in cluster.nodes.values():
            node.process.kill()


def _node(folder: Path, node_id: int, roles: str, network: Network | None) -> ClusterNode:
    folder.mkdir()
    process = RunningNode(folder, {}, folder / "server.properties")
    directory_id = random_uuid(SYSTEM_CHANCE)
    node = ClusterNode(node_id, roles, free_port(), free_port(), directory_id, process)
    if network is not None:
        node.host = network.host(node_id)
        process.prefix = network.prefix(node_id)
        names = ["PLAINTEXT"] * node.is_broker + ["CONTROLLER"] * node.is_controller
        process.options = tuple(f"--insecure-listener={name}" for name in names)
    return node


def _initial_controllers(cluster: RunningCluster) -> str:
    return ",".join(
        f"{each.node_id}@{each.controller_address}:{uuid_text(each.directory_id)}"
        for each in cluster.controllers
    )


def _properties(
    cluster: RunningCluster, node: ClusterNode, settings: Mapping[str, str]
) -> dict[str, Any]:
    listeners = []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://{node.address}")
    if node.is_controller:
        listeners.append(f"CONTROLLER://{node.controller_address}")
    if cluster.has_static_voters:
        name = "controller.quorum.voters"
        servers = [f"{each.node_id}@{each.controller_address}" for each in cluster.controllers]
    else:
        name = "controller.quorum.bootstrap.servers"
        servers = [each.controller_address for each in cluster.controllers]
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
