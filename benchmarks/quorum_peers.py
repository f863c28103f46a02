"""Clusters of Moldau and of Apache Kafka, for benchmarks that measure both in one run: three
controllers and two brokers, each in a process of its own, with default settings.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from node_peers import CLUSTER_ID, HEAP, HOST, Peer, kafka_libs

from moldau.types import Uuid, uuid_text

CONTROLLER_IDS = (1, 2, 3)
BROKER_IDS = (4, 5)


class ClusterNode(Peer):
    """A controller or a broker. Its port is that of its only listener."""

    def __init__(self, folder: Path, node_id: int) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.node_id = node_id
        self.is_controller = node_id in CONTROLLER_IDS
        self.directory_id = uuid_text(Uuid(uuid4().bytes))
        self.properties = folder / "server.properties"
        self.initial_controllers = ""
        """Of the cluster, as both tools that format directories take them."""

    @abstractmethod
    def storage_tool(self) -> list[str]: ...

    def format(self) -> None:
        command = [*self.storage_tool(), "format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        if self.is_controller:
            command += ["--initial-controllers", self.initial_controllers]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{self.label} was not formatted: {done.stdout} {done.stderr}")

    def configure(self, controllers: list["ClusterNode"]) -> None:
        listener = "CONTROLLER" if self.is_controller else "PLAINTEXT"
        lines = {
            "process.roles": "controller" if self.is_controller else "broker",
            "node.id": self.node_id,
            "controller.quorum.bootstrap.servers": ",".join(each.bootstrap for each in controllers),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"{listener}://{self.bootstrap}",
            "log.dirs": self.data,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self.initial_controllers = ",".join(
            f"{each.node_id}@{HOST}:{each.port}:{each.directory_id}" for each in controllers
        )


class MoldauNode(ClusterNode):
    label = "moldau"

    def environment(self) -> dict[str, str]:
        """Bytecode is cached, as in every installed package."""
        environment = super().environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment | {"PYTHONPYCACHEPREFIX": str(self.folder.parent / "bytecode")}

    def storage_tool(self) -> list[str]:
        return [_MOLDAU, "storage"]

    def command(self) -> list[str]:
        return [_MOLDAU, "start", "--config", str(self.properties)]


class ApacheNode(ClusterNode):
    label = "apache"

    def storage_tool(self) -> list[str]:
        return ["java", "-cp", kafka_libs(), "kafka.tools.StorageTool"]

    def command(self) -> list[str]:
        logging = self.folder / "log4j2.properties"
        logging.write_text("rootLogger.level = off\n")
        return [
            "java", *HEAP, f"-Dlog4j2.configurationFile={logging}", "-cp", kafka_libs(),
            "kafka.Kafka", str(self.properties),
        ]  # fmt: skip


_MOLDAU = str(Path(sys.executable).with_name("moldau"))
_KINDS: dict[str, type[ClusterNode]] = {"moldau": MoldauNode, "apache": ApacheNode}


class Cluster:
    def __init__(self, label: str, folder: Path) -> None:
        folder.mkdir()
        self.label = label
        self.nodes = [
            _KINDS[label](folder / str(node_id), node_id)
            for node_id in (*CONTROLLER_IDS, *BROKER_IDS)
        ]

    @property
    def controllers(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.is_controller]

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes if not node.is_controller]

    @property
    def broker_ports(self) -> list[int]:
        return [broker.port for broker in self.brokers]

    def node(self, node_id: int) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def start(self) -> None:
        for node in self.nodes:
            node.configure(self.controllers)
            node.format()
        # All before the first answers: a quorum needs two of its voters.
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_answering()


@contextlib.contextmanager
def running_clusters(labels: list[str]) -> Iterator[list[Cluster]]:
    """Started clusters in temporary directories (below BENCH_DIR if that is set)."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as folder,
        contextlib.ExitStack() as stack,
    ):
        clusters = [Cluster(label, Path(folder) / label) for label in labels]
        for cluster in clusters:
            for node in cluster.nodes:
                stack.callback(node.kill)
            cluster.start()
        yield clusters
