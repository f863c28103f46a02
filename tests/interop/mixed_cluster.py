"""Clusters on loopback whose nodes are Apache Kafka 4.3.1 or Moldau: each a controller or a broker,
in a process of its own.

Leaving the `with` block ends every process by its id. Waits poll a condition and have a deadline.
"""

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.apache import LOGGING, ApacheOracle, require_tool
from interop.live_broker import CLUSTER_ID, STOP_TIMEOUT_S
from interop.peers.java_tools import STORAGE
from support.running_node import free_port, freeze
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient

from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.types import METADATA_PARTITION, Uuid, uuid_text

APACHE, MOLDAU = "apache", "moldau"
CONTROLLER, BROKER = "controller", "broker"
# A JVM may take twenty seconds on a busy machine.
CHANGE_TIMEOUT_S = 120.0
# Several run at once.
JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    # A busy machine must not change the leader.
    "controller.quorum.fetch.timeout.ms": "3000",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
}
# Controllers keep settings that they do not know.
SETTING = "moldau.test"
DESCRIBE = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequestTopicData(
            topic_name=METADATA_PARTITION.topic,
            partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
        )
    ]
)


@dataclass
class MixedNode:
    node_id: int
    kind: str
    role: str
    folder: Path
    port: int = field(default_factory=free_port)
    directory_id: Uuid = field(default_factory=lambda: random_uuid(SYSTEM_CHANCE))
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False

    @property
    def address(self) -> str:
        """Of its one listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log_folder(self) -> Path:
        return self.folder / "logs"

    @property
    def metadata_log(self) -> Path:
        return self.log_folder / "__cluster_metadata-0"

    @property
    def output(self) -> str:
        return (self.folder / "node.log").read_text(errors="replace")


class MixedCluster:
    """`kinds` has the kind and the role of each node by its id. `voters` are the first voters, all
    controllers unless it is given.
    """

    def __init__(
        self,
        apache: ApacheOracle,
        folder: Path,
        kinds: Mapping[int, tuple[str, str]],
        settings: Mapping[str, str] | None = None,
        *,
        voters: Iterable[int] | None = None,
        static_voters: bool = False,
    ) -> None:
        self._apache = apache
        self._settings = SETTINGS | dict(settings or {})
        self._static_voters = static_voters
        self.nodes = {
            node_id: MixedNode(node_id, *kind, folder / f"node-{node_id}")
            for node_id, kind in kinds.items()
        }
        self._voters = list(self.controllers if voters is None else voters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node_id in self.nodes:
            self.kill(node_id)

    @property
    def controllers(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.role == CONTROLLER]

    @property
    def brokers(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.role == BROKER]

    def directory_id(self, node_id: int) -> str:
        """Of the metadata log, as text."""
        lines = (self.nodes[node_id].log_folder / "meta.properties").read_text().splitlines()
        (found,) = (line.partition("=")[2] for line in lines if line.startswith("directory.id="))
        return found

    @property
    def running(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.process is not None]

    # Processes

    def format(self, *node_ids: int) -> None:
        """Write the first files of these nodes, or of all."""
        for node_id in node_ids or self.nodes:
            node = self.nodes[node_id]
            node.folder.mkdir(parents=True, exist_ok=True)
            self._write_properties(node)
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(node.properties)]
            arguments += self._format_options(node_id)
            if node.kind == APACHE:
                run = self._apache.run_tool(STORAGE, *arguments)
                assert run.status == 0, run
            else:
                command = [sys.executable, "-m", "moldau", "storage", *arguments]
                subprocess.run(command, check=True, capture_output=True, timeout=60)

    def _format_options(self, node_id: int) -> list[str]:
        if self._static_voters:
            return []
        if node_id not in self._voters:
            return ["--no-initial-controllers"]
        voters = (self.nodes[each] for each in self._voters)
        texts = (f"{v.node_id}@{v.address}:{uuid_text(v.directory_id)}" for v in voters)
        return ["--initial-controllers", ",".join(texts)]

    def _write_properties(self, node: MixedNode) -> None:
        controllers = [self.nodes[node_id] for node_id in self.controllers]
        addresses = ",".join(each.address for each in controllers)
        quorum = {"controller.quorum.bootstrap.servers": addresses}
        if self._static_voters:
            voters = ",".join(f"{each.node_id}@{each.address}" for each in controllers)
            quorum = {"controller.quorum.voters": voters}
        listener = "CONTROLLER" if node.role == CONTROLLER else "PLAINTEXT"
        own = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "log.dirs": str(node.log_folder),
            "listeners": f"{listener}://{node.address}",
        }
        rows = (self._settings | quorum | own).items()
        node.properties.write_text("".join(f"{name}={value}\n" for name, value in rows))

    def start(self, *node_ids: int) -> None:
        """Start these nodes, or all, and wait until they follow: controllers the quorum's leader,
        brokers the metadata.
        """
        for node_id in node_ids or self.nodes:
            self.launch(node_id)
        self.wait_until_whole()

    def launch(self, node_id: int) -> None:
        """Start the process without waiting for it."""
        node = self.nodes[node_id]
        command = [sys.executable, "-m", "moldau", "start", "--config", str(node.properties)]
        if node.kind == APACHE:
            command = [require_tool("java"), *JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
            command += ["-Dmoldau.interop.level=info", "-cp", f"{self._apache.jar_folder}/*"]
            command += ["kafka.Kafka", str(node.properties)]
        with (node.folder / "node.log").open("ab") as output:
            node.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self, node_id: int) -> None:
        """SIGKILL; also valid for a node that does not run."""
        node = self.nodes[node_id]
        if node.process is not None:
            node.process.kill()
            node.process.wait()
            node.process = None

    def stop(self, node_id: int) -> int:
        """The exit status after SIGTERM."""
        node = self.nodes[node_id]
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        status = node.process.wait(STOP_TIMEOUT_S)
        node.process = None
        return status

    def freeze(self, node_id: int) -> None:
        """Connections stay open and no request is answered, until `thaw`."""
        node = self.nodes[node_id]
        assert node.process is not None
        freeze(node.process.pid)
        node.is_frozen = True

    def thaw(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.process is not None
        node.process.send_signal(signal.SIGCONT)
        node.is_frozen = False

    # The quorum

    def ask(self, node_id: int, request: Any, version: int | None = None) -> Any:
        """None if the node does not answer."""
        with suppress(OSError, HungUpError), WireClient(self.nodes[node_id].address) as client:
            return client.ask(request, version)
        return None

    def described(self) -> Any:
        """The description by the leader with the latest epoch, or None."""
        found = []
        for node_id in self.running:
            node = self.nodes[node_id]
            if node.role == CONTROLLER and not node.is_frozen:
                answer = self.ask(node_id, DESCRIBE)
                rows = answer.topics[0].partitions if answer and answer.topics else []
                found += [row for row in rows if row.error_code == 0]
        return max(found, key=lambda row: row.leader_epoch, default=None)

    @property
    def leader(self) -> int:
        """The id of the leader, -1 if there is none now."""
        found = self.described()
        return -1 if found is None else int(found.leader_id)

    @property
    def voters(self) -> set[int]:
        """As the leader describes them."""
        found = self.described()
        return set() if found is None else {row.replica_id for row in found.current_voters}

    def wait_for_leader(self, *, other_than: int = -1) -> int:
        found = -1

        def is_led() -> bool:
            nonlocal found
            self._expect_alive()
            found = self.leader
            return found not in {-1, other_than}

        wait_for(is_led, "a leader of the quorum", CHANGE_TIMEOUT_S)
        return found

    def wait_until_whole(self) -> None:
        """Every running node has fetched all of the metadata log, and the brokers are unfenced."""
        wait_for(self.is_whole, self._state, CHANGE_TIMEOUT_S)

    def is_whole(self) -> bool:
        self._expect_alive()
        found = self.described()
        if found is None:
            return False
        rows = [*found.current_voters, *found.observers]
        ends = {row.replica_id: row.log_end_offset for row in rows}
        brokers = {node_id for node_id in self.running if node_id in self.brokers}
        return all(ends.get(node_id) == found.high_watermark for node_id in self.running) and all(
            self.known_brokers(node_id) == brokers for node_id in brokers
        )

    def known_brokers(self, node_id: int) -> set[int]:
        """The unfenced brokers, as a broker describes the cluster."""
        found = self.ask(node_id, DescribeClusterRequest(endpoint_type=1))
        return set() if found is None else {each.broker_id for each in found.brokers}

    def _expect_alive(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is not None:
                raise AssertionError(f"node {node.node_id} ended: {node.output[-3000:]}")

    def _state(self) -> str:
        tails = (f"{node_id}: {self.nodes[node_id].output[-1500:]}" for node_id in self.running)
        return "\n".join([f"a whole cluster: {self.described()}", *tails])

    def elect(self, wanted: int) -> bytes:
        """Kill the leader so that `wanted` succeeds it. Returns the value of a setting that only
        the killed leader has appended: its log is to be cut.
        """
        leader = self.wait_for_leader()
        assert leader != wanted
        (third,) = set(self.controllers) - {leader, wanted}
        frozen = []
        try:
            # It lacks the second of two records and cannot be elected; the first may be on its way.
            self.freeze(third)
            frozen.append(third)
            for _ in range(2):
                self.commit()
            self.freeze(wanted)
            frozen.append(wanted)
            lost = self._append_uncommitted(leader)
            self.kill(leader)
        finally:
            for node_id in frozen:
                self.thaw(node_id)
        assert self.wait_for_leader(other_than=leader) == wanted
        return lost

    def _append_uncommitted(self, leader: int) -> bytes:
        """While the other voters are frozen; the first of two records may be on its way to them."""
        lost = b""
        for _ in range(2):
            lost = secrets.token_hex(8).encode()
            with WireClient(self.nodes[leader].address) as client:
                client.send(setting(lost.decode()))
                wait_for(partial(self.has_logged, leader, lost), "an append by the leader")
        return lost

    def commit(self, at: int | None = None) -> None:
        """A change of the metadata: at a broker, or at the leader, which may not be active yet."""
        value = secrets.token_hex(8)

        def is_done() -> bool:
            answer = self.ask(self.wait_for_leader() if at is None else at, setting(value))
            return answer is not None and answer.responses[0].error_code == ErrorCode.NONE

        wait_for(is_done, "an active controller", CHANGE_TIMEOUT_S)

    def has_logged(self, node_id: int, value: bytes) -> bool:
        """Whether the log of the metadata has these bytes, committed or not."""
        log = self.nodes[node_id].metadata_log
        return any(value in segment.read_bytes() for segment in log.glob("*.log"))


def setting(value: str) -> IncrementalAlterConfigsRequest:
    """A setting without an effect, for all brokers."""
    changed = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name="",
        configs=[AlterableConfig(name=SETTING, value=value)],
    )
    return IncrementalAlterConfigsRequest(resources=[changed])
