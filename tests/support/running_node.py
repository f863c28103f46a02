"""Nodes for tests: `moldau start` in a process of its own, stopped by its process id.

With KAFKA_UNDER_TEST=host:port the suites use a broker that already runs: each promise is first
shown to hold on Apache Kafka, then here. Waits poll a condition and have a deadline.
"""

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from support.waiting import wait_for

UNDER_TEST = "KAFKA_UNDER_TEST"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# Below the range from which the kernel assigns ports to outgoing connections: a client that keeps
# dialling a stopped node must not end up connected to itself.
PORTS = range(15_000, 32_000)
# Groups start at once and the internal topic stays small, as in Kafka's own tests.
QUICK_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}


def free_port() -> int:
    """An unused port of the loopback interface."""
    for port in random.sample(PORTS, 200):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port found")


def fresh_name(kind: str) -> str:
    """A name that was never used before, even on a broker that outlives the test run."""
    return f"{kind}-{secrets.token_hex(5)}"


def freeze(pid: int) -> None:
    """Sends SIGSTOP and waits until it takes effect: threads run on until the first of them
    notices.
    """
    os.kill(pid, signal.SIGSTOP)
    states = Path(f"/proc/{pid}/task")

    def stands_still() -> bool:
        try:
            texts = [stat.read_text() for stat in states.glob("*/stat")]
        except OSError:
            return False  # A thread ended meanwhile.
        # The state follows the name, which is in brackets and may contain anything.
        return all(text.rpartition(")")[2].split()[0] == "T" for text in texts)

    wait_for(stands_still, f"process {pid} to stop")


class NodeDidNotStartError(AssertionError):
    """The process ended before it was ready; the text contains its output."""


@dataclass
class RunningNode:
    """One `moldau start`. The directory survives the process: start it again on the same port."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: QUICK_SETTINGS)
    config: Path | None = None
    port: int = field(default_factory=free_port)
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """More options of the command."""
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_folder(self) -> Path:
        return self.folder / "data"

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def resources(self) -> psutil.Process:
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def command(self) -> list[str]:
        command = [*self.prefix, sys.executable, "-m", "moldau", "start"]
        command += ["--ready-file", str(self.folder / "ready")]
        if self.config is not None:
            command += ["--config", str(self.config)]
        else:
            command += ["--dir", str(self.log_folder), "--port", str(self.port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return [*command, *self.options]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        (self.folder / "ready").unlink(missing_ok=True)
        with (
            (self.folder / "stdout").open("ab") as output,
            (self.folder / "stderr").open("ab") as errors,
        ):
            self.process = subprocess.Popen(self.command(), stdout=output, stderr=errors)
        return self.process

    def start(self) -> Self:
        """Start the process and wait until it reports that it accepts requests."""
        process = self.launch()

        def is_ready() -> bool:
            status = process.poll()
            if status is not None:
                raise NodeDidNotStartError(f"status {status}: {self.errors[-3000:]}")
            return (self.folder / "ready").exists()

        wait_for(is_ready, lambda: f"a ready node: {self.errors[-3000:]}", START_TIMEOUT_S)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Request a clean stop. Returns the exit status."""
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(STOP_TIMEOUT_S)
        self.process = None
        return status

    def kill(self) -> None:
        """SIGKILL; also valid for a node that has already ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass(frozen=True)
class KafkaUnderTest:
    """The broker that a suite uses."""

    address: str
    node: RunningNode | None

    @property
    def is_apache(self) -> bool:
        return self.node is None


@contextmanager
def kafka_under_test(
    folder: Path, settings: Mapping[str, str] = QUICK_SETTINGS
) -> Iterator[KafkaUnderTest]:
    """A new node of ours, or the broker that the environment names."""
    named = os.environ.get(UNDER_TEST)
    if named is not None:
        yield KafkaUnderTest(named, None)
        return
    with RunningNode(folder, settings) as node:
        node.start()
        yield KafkaUnderTest(node.address, node)
        node.stop()
