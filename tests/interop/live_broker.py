"""A live node on loopback, over a directory that the test owns: Apache Kafka 4.3.1, or Moldau.

The node runs until `stop` or `kill`; leaving the `with` block always ends it by its process id.
Waits poll a condition and have a deadline.
"""

import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic
from interop.apache import LOGGING, ApacheOracle, require_tool
from support.waiting import wait_for

from moldau.types import TopicPartition

CLUSTER_ID = "MoldauInteropTest0000Q"
NODE_ID = 1
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
CLIENT_TIMEOUT_S = 60.0
NODE_JVM = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The cleaner runs once at start and not again during a test: tests trigger compaction themselves.
NODE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "3600000",
    "log.index.size.max.bytes": "1048576",
    # After SIGKILL the node can only register again when the controller has missed its old session.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@dataclass(frozen=True, slots=True)
class ServedRecord:
    """A record as a consumer receives it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Served = dict[TopicPartition, list[ServedRecord]]


def free_ports(count: int) -> list[int]:
    """Unused ports of the loopback interface."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(holder.getsockname()[1]) for holder in holders]
    for holder in holders:
        holder.close()
    return ports


class LiveNode(ABC):
    """One node of either kind; its log directory is `folder/logs`."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.log_folder = folder / "logs"
        self.properties = folder / "server.properties"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._format_options = ["--standalone"]
        broker_port, controller_port = free_ports(2)
        self.address = f"127.0.0.1:{broker_port}"
        self.controller_address = f"127.0.0.1:{controller_port}"
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://{self.controller_address}"
        node_settings = NODE_SETTINGS | {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": self.controller_address,
            "log.dirs": str(self.log_folder),
        }
        node_settings |= settings or {}
        lines = [f"{name}={value}\n" for name, value in node_settings.items()]
        self.properties.write_text("".join(lines), encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def name_voters_in_settings(self) -> None:
        """Call it before formatting: kraft.version is 0 then."""
        text = self.properties.read_text()
        static = ("controller.quorum.bootstrap.servers=", "controller.quorum.voters=1@")
        self.properties.write_text(text.replace(*static))
        self._format_options = []

    @abstractmethod
    def format(self) -> None:
        """Write the first files of a cluster of one node."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the node in the foreground."""

    def start(self) -> None:
        """Start the node and wait until it answers a client."""
        log = self._folder / "node.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(self.command(), stdout=output, stderr=output)
        admin = self.admin()

        def answers() -> bool:
            self._expect_alive(log)
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        wait_for(answers, lambda: f"an answer: {log.read_text()[-3000:]}", START_TIMEOUT_S)

    def _expect_alive(self, log: Path) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the node ended: {log.read_text()[-3000:]}"

    def wait_for_cleaning(self, name: TopicPartition, offset: int) -> None:
        """Wait until the cleaner's checkpoint for the log reaches an offset."""
        checkpoint = self.log_folder / "cleaner-offset-checkpoint"
        wanted = f"{name.topic} {name.partition} {offset}"

        def is_cleaned() -> bool:
            self._expect_alive(self._folder / "node.log")
            return wanted in checkpoint.read_text(encoding="utf-8").splitlines()

        wait_for(is_cleaned, lambda: f"{wanted} in {checkpoint.read_text()}", CLIENT_TIMEOUT_S)

    def stop(self) -> None:
        """Shut the node down cleanly."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """SIGKILL; also valid for a node that has already ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic and wait until each partition has a leader."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        for creation in admin.create_topics([topic]).values():
            creation.result(timeout=CLIENT_TIMEOUT_S)

        def leaders_known() -> bool:
            known = admin.list_topics(topic=name, timeout=5).topics[name].partitions
            return len(known) == partitions and all(p.leader == NODE_ID for p in known.values())

        wait_for(leaders_known, f"leaders of {name}")

    def producer(self, **settings: Any) -> Any:
        """A confluent-kafka producer; `_` in the name of a setting represents a dot."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer({"bootstrap.servers": self.address, "log_level": 0} | config)

    def offset_for_time(self, name: TopicPartition, time_ms: int) -> int:
        """The first offset at or after a time, as ListOffsets returns it."""
        query = {ClientPartition(*name): OffsetSpec.for_timestamp(time_ms)}
        # The client must outlive its response.
        admin = self.admin()
        (answer,) = admin.list_offsets(query).values()
        return int(answer.result(timeout=CLIENT_TIMEOUT_S).offset)

    def read(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> Served:
        """All records of some partitions, as a consumer of the chosen isolation level receives
        them.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "interop-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # Only an empty response announces the end, and the node holds it back this long.
                "fetch.wait.max.ms": 10,
                "check.crcs": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )
        try:
            names = [ClientPartition(*each, OFFSET_BEGINNING) for each in partitions]
            consumer.assign(names)
            return _read_to_the_ends(consumer, names)
        finally:
            consumer.close()


class LiveBroker(LiveNode):
    """Apache Kafka."""

    def __init__(
        self, apache: ApacheOracle, folder: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, settings)
        self._apache = apache

    def format(self) -> None:
        tool = "kafka.tools.StorageTool"
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        run = self._apache.run_tool(tool, *arguments, *self._format_options)
        assert run.status == 0, run

    def command(self) -> list[str]:
        command = [require_tool("java"), *NODE_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-Dmoldau.interop.level=info", "-cp", f"{self._apache.jar_folder}/*"]
        return [*command, "kafka.Kafka", str(self.properties)]


class LiveMoldau(LiveNode):
    """Moldau, from the environment that runs the tests, with the same settings as Apache."""

    def format(self) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        command = [sys.executable, "-m", "moldau", "storage", *arguments, *self._format_options]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
        assert run.returncode == 0, run

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moldau", "start", "--config", str(self.properties)]


def _read_to_the_ends(consumer: Any, partitions: list[Any]) -> Served:
    served: Served = {TopicPartition(each.topic, each.partition): [] for each in partitions}
    unfinished = set(served)
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while unfinished:
        assert time.monotonic() < deadline, f"the end was not reached: {unfinished}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        name = TopicPartition(message.topic(), message.partition())
        if error is None:
            served[name].append(_served(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(name)
        elif not error.retriable():
            raise KafkaException(error)
    return served


def _served(message: Any) -> ServedRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    timestamp = message.timestamp()[1]
    return ServedRecord(message.offset(), timestamp, message.key(), message.value(), headers)
