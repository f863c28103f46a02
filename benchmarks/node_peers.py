"""Moldau and Apache Kafka, each as one node in a process of its own, for benchmarks that measure
both in one run. Apache Kafka's jars come from KAFKA_LIBS, or from the cache of the interop suite.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import psutil

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
START_DEADLINE_S = 120
STOP_DEADLINE_S = 60
POLL_S = 0.002
# Below the range from which the kernel assigns ports to outgoing connections: otherwise one of them
# could take the port of a node that is down, or connect to itself.
PORTS = range(15_000, 32_000)
HEAP = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
# ApiVersions version 0 with correlation id 1 and without a client id.
API_VERSIONS_V0 = bytes.fromhex("0000000a00120000" + "00000001" + "ffff")


def kafka_libs() -> str:
    """The class path of Apache Kafka and its tools."""
    given = os.environ.get("KAFKA_LIBS")
    folders = [Path(given)] if given else (ROOT / ".interop").glob("apache-kafka-*")
    for folder in folders:
        if any(folder.glob("kafka-tools-*.jar")):
            return f"{folder}/*"
    raise SystemExit("Apache Kafka's jars are not here: run `make interop` once, or set KAFKA_LIBS")


def free_port() -> int:
    for port in random.sample(PORTS, 200):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise SystemExit("no free port found")


class Peer(ABC):
    """A node. `bootstrap` is its address, the same at every start."""

    label: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.source: Path | None = None
        self._process: psutil.Popen | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @abstractmethod
    def format(self) -> None: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        if self.source is None:
            return dict(os.environ)
        return os.environ | {"PYTHONPATH": str(self.source)}

    def start(self) -> float:
        """Starts it and returns the seconds until it answers its first request."""
        began = time.perf_counter()
        self.launch()
        self.wait_answering()
        return time.perf_counter() - began

    def launch(self) -> None:
        assert self._process is None
        with self._log_path.open("ab") as log:
            self._process = psutil.Popen(
                self.command(), env=self.environment(), stdout=log, stderr=log
            )

    def wait_answering(self) -> None:
        process, give_up = self._running(), time.perf_counter() + START_DEADLINE_S
        while not self._answers():
            if process.poll() is not None:
                raise SystemExit(f"{self.label} ended: {self._log_path.read_text()[-2000:]}")
            if time.perf_counter() > give_up:
                log = self._log_path.read_text()
                raise SystemExit(f"{self.label} did not start: {log[-2000:]}")
            Event().wait(POLL_S)

    @property
    def _log_path(self) -> Path:
        return self.folder / "output.log"

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self.port), timeout=10) as connection,
        ):
            connection.sendall(API_VERSIONS_V0)
            return bool(connection.recv(4))
        return False

    @property
    def pid(self) -> int:
        return int(self._running().pid)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rss_mb(self) -> float:
        return self._running().memory_info().rss / 1e6

    def private_mb(self) -> float:
        """Resident memory without mapped files."""
        memory = self._running().memory_info()
        return float(memory.rss - memory.shared) / 1e6

    def cpu_seconds(self) -> float:
        """Processor time since the node started, in its own code and in the kernel."""
        if sys.platform == "linux":
            # The process's clock (clock_getcpuclockid): ticks of 10 ms would be too coarse for a
            # round.
            return time.clock_gettime(~self.pid << 3 | 2)
        times = self._running().cpu_times()
        return float(times.user + times.system)

    def _running(self) -> psutil.Popen:
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        self.wait_ended()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait_ended()

    def signal(self, number: signal.Signals) -> None:
        """Sends it to the process, if there is one."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.send_signal(number)

    def wait_ended(self) -> None:
        """Kills it if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(STOP_DEADLINE_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_DEADLINE_S)

    def start_over(self) -> None:
        """Stopped, with an empty directory."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        self.format()


class Moldau(Peer):
    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(folder)
        self.label = f"moldau {policy}"
        self.policy = policy

    def format(self) -> None:
        """Moldau formats its directory automatically at its first start."""

    def environment(self) -> dict[str, str]:
        """Bytecode is cached, as in every installed package."""
        environment = super().environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment | {"PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}

    def command(self) -> list[str]:
        return [
            str(Path(sys.executable).with_name("moldau")), "start", "--dir", str(self.data),
            "--port", str(self.port), "--set", f"moldau.flush.policy={self.policy}",
            "--set", "group.initial.rebalance.delay.ms=0",
        ]  # fmt: skip


class Apache(Peer):
    def __init__(self, folder: Path, policy: str = "") -> None:
        """With `synced` it waits for the disk at every append, which is not a usual configuration;
        then its guarantees match those of Moldau with the policy `group`.
        """
        super().__init__(folder)
        self.label = f"apache {policy}".strip()
        self.is_synced = policy == "synced"
        self.libs = kafka_libs()
        self.properties = folder / "server.properties"
        self.logging = folder / "log4j2.properties"

    def format(self) -> None:
        controller = free_port()
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{controller}"
        self.properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={HOST}:{controller}
listeners={listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
log.dirs={self.data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
{"log.flush.interval.messages=1" if self.is_synced else ""}
"""
        )
        self.logging.write_text("rootLogger.level = off\n")
        command = [
            "java", "-cp", self.libs, "kafka.tools.StorageTool", "format", "--standalone",
            "-t", CLUSTER_ID, "-c", str(self.properties),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)

    def command(self) -> list[str]:
        return [
            "java", *HEAP, f"-Dlog4j2.configurationFile={self.logging}", "-cp", self.libs,
            "kafka.Kafka", str(self.properties),
        ]  # fmt: skip


def new_peer(label: str, folder: Path) -> Peer:
    """`apache` or `apache synced`, or `moldau` and its flush policy."""
    folder.mkdir()
    kind, _, policy = label.partition(" ")
    return Apache(folder, policy) if kind == "apache" else Moldau(folder, policy)


@contextlib.contextmanager
def running_peers(labels: list[str], source: Path | None = None) -> Iterator[list[Peer]]:
    """Started nodes in temporary directories (below BENCH_DIR if that is set), with the code in
    `source` instead of ours if that is given.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as folder,
        contextlib.ExitStack() as stack,
    ):
        peers = [new_peer(label, Path(folder) / str(n)) for n, label in enumerate(labels)]
        for peer in peers:
            peer.source = source
            stack.callback(peer.stop)
            peer.format()
            peer.start()
        yield peers
