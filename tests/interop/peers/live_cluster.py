"""A cluster of Apache Kafka 4.3.1 on loopback: one controller and three brokers, each in its own
rack.

Tests stop, kill and start brokers and move leaders and coordinators. Waits poll a condition and
have a deadline; leaving the `with` block ends every process by its id.
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.apache import LOGGING, ApacheOracle, require_tool
from interop.live_broker import CLUSTER_ID, STOP_TIMEOUT_S
from support.running_node import free_port, freeze
from support.waiting import pause, wait_for
from support.wire_client import HungUpError, WireClient

from moldau.protocol.enums import CoordinatorType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.types import TopicPartition

CONTROLLER_ID = 100
BROKER_IDS = (1, 2, 3)
CHANGE_TIMEOUT_S = 120.0
# Small, because several run at once.
CLUSTER_JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # Leaders stay where a test placed them.
    "auto.leader.rebalance.enable": "false",
    # A killed broker is missed soon, but a slow one on a busy machine is not.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
}


class LiveCluster:
    """Its brokers are 1, 2 and 3; broker 2 is in rack `rack-2`."""

    def __init__(
        self, apache: ApacheOracle, folder: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._apache = apache
        self._folder = folder
        self._settings = SETTINGS | dict(settings or {})
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._controller_port = free_port()
        self.ports = {node_id: free_port() for node_id in BROKER_IDS}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node_id in list(self._running):
            self.kill(node_id)

    # Processes.

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, BROKER_IDS))

    @property
    def alive(self) -> list[int]:
        return [node_id for node_id in BROKER_IDS if node_id in self._running]

    def address(self, node_id: int) -> str:
        return f"127.0.0.1:{self.ports[node_id]}"

    def rack(self, node_id: int) -> str:
        return f"rack-{node_id}"

    def begin(self) -> None:
        """Format the directories and start everything."""
        for node_id in (CONTROLLER_ID, *BROKER_IDS):
            properties = self._write_properties(node_id)
            how = ["--standalone"] if node_id == CONTROLLER_ID else ["--no-initial-controllers"]
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties), *how]
            run = self._apache.run_tool("kafka.tools.StorageTool", *arguments)
            assert run.status == 0, run
        self._launch(CONTROLLER_ID)
        self.start(*BROKER_IDS)

    def start(self, *node_ids: int) -> None:
        """Start brokers and wait until they lead and follow again."""
        for node_id in node_ids:
            self._launch(node_id)
        self.wait_until_whole()

    def stop(self, node_id: int) -> None:
        """A controlled shutdown: the broker first hands over its leaders."""
        process = self._running.pop(node_id)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        process = self._running.pop(node_id)
        process.kill()
        process.wait()

    def freeze(self, node_id: int) -> None:
        """Connections stay open and no request is answered, until `thaw`."""
        freeze(self._running[node_id].pid)

    def thaw(self, node_id: int) -> None:
        self._running[node_id].send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """All brokers run and are in sync; leaders stay as they are."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
        missing = [node_id for node_id in BROKER_IDS if node_id not in self._running]
        self.start(*missing)

    def change_ports(self, *node_ids: int) -> None:
        """Restart these brokers on other ports."""
        for node_id in node_ids:
            self.kill(node_id)
            self.ports[node_id] = free_port()
            self._write_properties(node_id)
        self.start(*node_ids)

    def _write_properties(self, node_id: int) -> Path:
        folder = self._folder / f"node-{node_id}"
        folder.mkdir(exist_ok=True)
        controller = f"127.0.0.1:{self._controller_port}"
        own = {
            "node.id": str(node_id),
            "log.dirs": str(folder / "logs"),
            "controller.quorum.bootstrap.servers": controller,
        }
        if node_id == CONTROLLER_ID:
            own |= {"process.roles": "controller", "listeners": f"CONTROLLER://{controller}"}
        else:
            own |= {
                "process.roles": "broker",
                "broker.rack": self.rack(node_id),
                "listeners": f"PLAINTEXT://{self.address(node_id)}",
                "inter.broker.listener.name": "PLAINTEXT",
            }
        lines = [f"{name}={value}\n" for name, value in (self._settings | own).items()]
        properties = folder / "server.properties"
        properties.write_text("".join(lines), encoding="utf-8")
        return properties

    def _launch(self, node_id: int) -> None:
        folder = self._folder / f"node-{node_id}"
        command = [require_tool("java"), *CLUSTER_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-Dmoldau.interop.level=warn", "-cp", f"{self._apache.jar_folder}/*"]
        command += ["kafka.Kafka", str(folder / "server.properties")]
        with (folder / "node.log").open("ab") as output:
            self._running[node_id] = subprocess.Popen(command, stdout=output, stderr=output)

    # Requests to the cluster

    def ask(self, request: Any, broker_id: int | None = None) -> Any:
        """Send the request to one broker, or to any that answers."""
        for node_id in self.alive if broker_id is None else [broker_id]:
            with suppress(OSError, HungUpError), WireClient(self.address(node_id)) as client:
                return client.ask(request)
        return None

    def wait_until_whole(self) -> None:
        """Every running broker is known to all, and every replica on them is in sync."""
        wait_for(self._is_whole, f"the brokers {self.alive}", CHANGE_TIMEOUT_S)

    def _is_whole(self) -> bool:
        for node_id, process in self._running.items():
            log = self._folder / f"node-{node_id}" / "node.log"
            assert process.poll() is None, f"node {node_id} ended: {log.read_text()[-3000:]}"
        alive = set(self.alive)
        for node_id in alive:
            try:
                with WireClient(self.address(node_id)) as client:
                    known = client.ask(MetadataRequest(topics=None))
            except (OSError, HungUpError):
                return False
            if {broker.node_id for broker in known.brokers} != alive:
                return False
            for topic in known.topics:
                for row in topic.partitions:
                    wanted = alive.intersection(row.replica_nodes)
                    if row.leader_id not in alive or not wanted.issubset(row.isr_nodes):
                        return False
        return True

    def partitions(self, topic: str, broker_id: int | None = None) -> dict[int, Any]:
        """The rows of Metadata, by partition number."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer = self.ask(request, broker_id)
        return (
            {}
            if answer is None
            else {row.partition_index: row for row in answer.topics[0].partitions}
        )

    def leader(self, partition: TopicPartition) -> int:
        """-1 if there is none now."""
        return int(self.partitions(partition.topic)[partition.partition].leader_id)

    def coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> int:
        """The broker that leads the partition of a group or a transactional id; its topic is
        created on first use.
        """
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        while True:
            answer = self.ask(request)
            if answer is not None:
                (row,) = answer.coordinators
                if row.error_code == ErrorCode.NONE:
                    return int(row.node_id)
                assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, row
            pause()

    # Changes to the cluster

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        leaders: list[int] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Partition n is led by `leaders[n]`, or by broker n % 3 + 1; the others follow."""
        firsts = leaders or [BROKER_IDS[number % 3] for number in range(partitions)]
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=_led_by(first))
            for number, first in enumerate(firsts)
        ]
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in (config or {}).items()],
        )
        (created,) = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)).topics
        assert created.error_code == ErrorCode.NONE, created.error_message
        self.wait_for_leaders(name, dict(enumerate(firsts)))

    def move_leaders(self, topic: str, leaders: Mapping[int, int]) -> None:
        """Move leadership to in-sync replicas by reordering the replicas and electing the first."""
        rows = [
            ReassignablePartition(partition_index=number, replicas=_led_by(leader))
            for number, leader in leaders.items()
        ]
        moved = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=rows)]
        )
        answer = self.ask(moved)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        for row in answer.responses[0].partitions:
            assert row.error_code == ErrorCode.NONE, row.error_message
        election = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=topic, partitions=list(leaders))]
        )
        for result in self.ask(election).replica_election_results:
            for row in result.partition_result:
                well = {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
                assert row.error_code in well, row.error_message
        self.wait_for_leaders(topic, leaders)

    def wait_for_leaders(self, topic: str, leaders: Mapping[int, int]) -> None:
        def are_there() -> bool:
            rows = self.partitions(topic)
            return all(
                number in rows and rows[number].leader_id == leader
                for number, leader in leaders.items()
            )

        wait_for(are_there, f"{leaders} to lead {topic}", CHANGE_TIMEOUT_S)


def _led_by(first: int) -> list[int]:
    return [first, *(node_id for node_id in BROKER_IDS if node_id != first)]


class Disturbance(threading.Thread):
    """Changes a cluster while a test runs; `finish` raises its errors."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error

    def finish(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error
