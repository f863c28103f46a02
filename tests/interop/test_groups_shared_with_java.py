"""A group with members of both kinds, our consumer and Kafka's own, with either as the leader: each
record is read by one of them, and remaining members take over from leaving ones.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from client.consumed import (
    PATIENCE_S,
    consumer_of,
    fresh_name,
    fresh_topic,
    poll_until,
    produce,
    values,
)
from interop.apache import LOGGING, SMALL_JVM, ApacheOracle, require_tool

from moldau.testing import ThreadBroker, broker

pytestmark = pytest.mark.interop

PARTITIONS = 6
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class JavaMember:
    """Kafka's console consumer; writes the values that it reads into a file."""

    def __init__(self, apache: ApacheOracle, command: list[str], output: Path) -> None:
        java = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        java += ["-cp", f"{apache.jar_folder}/*", CONSOLE_CONSUMER, *command]
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(java, stdout=file, stderr=subprocess.DEVNULL)

    @property
    def values(self) -> list[bytes]:
        return self._output.read_bytes().split()

    def stop(self) -> None:
        """Ends the program, which leaves its group."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@pytest.mark.parametrize("assignor", ["Range", "RoundRobin", "Sticky", "CooperativeSticky"])
@pytest.mark.parametrize("java_leads", [True, False])
def test_both_kinds_share_a_group(
    apache: ApacheOracle, tmp_path: Path, assignor: str, java_leads: bool
) -> None:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as node:
        assert isinstance(node, ThreadBroker)
        topic, group = fresh_topic(node, PARTITIONS), fresh_name("both")
        name = f"org.apache.kafka.clients.consumer.{assignor}Assignor"
        command = ["--bootstrap-server", node.bootstrap, "--topic", topic, "--group", group]
        for setting in (f"partition.assignment.strategy={name}", "auto.offset.reset=earliest"):
            command += ["--command-property", setting]
        found: list[Any] = []

        class Ours:
            def poll(self, timeout: float) -> None:
                found.extend(values(ours.poll(timeout)))

        settings = {"partition_assignment_strategy": [name], "heartbeat_interval_ms": 100}
        with consumer_of(node, group_id=group, **settings) as ours:
            if java_leads:
                java = JavaMember(apache, command, tmp_path / "read")
                produce(node.bootstrap, topic, [b"first"])
                poll_until(lambda: java.values == [b"first"])
                ours.subscribe(topic)
            else:
                ours.subscribe(topic)
                poll_until(lambda: len(ours.assignment()) == PARTITIONS, ours)
                java = JavaMember(apache, command, tmp_path / "read")
            try:
                poll_until(lambda: len(ours.assignment()) == PARTITIONS // 2, Ours())
                written = [b"%d" % number for number in range(600)]
                produce(node.bootstrap, topic, written)
                wanted = sorted([*written, b"first"] if java_leads else written)
                poll_until(lambda: len(found) + len(java.values) >= len(wanted), Ours())
            finally:
                java.stop()
            assert sorted(found + java.values) == wanted
            assert found
            assert set(java.values) - {b"first"}
            poll_until(lambda: len(ours.assignment()) == PARTITIONS, Ours())
