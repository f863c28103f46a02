"""A node stops on signals: at the first one cleanly, at the second at once."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import RunningNode
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.failing_sync import FailingSync
from system.node.questions import create_topics, produce, read_all
from system.node.starting import COMMAND, DEADLINE_S

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.storage.directory.directory import CLEAN_STOP_FILE


@pytest.fixture
def heeded_hangup() -> Iterator[None]:
    """A node inherits the ignored signals of its parent: this suite may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heeded_hangup")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(how: signal.Signals, tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        marker = node.log_folder / CLEAN_STOP_FILE
        assert not marker.exists()
        assert node.stop(how) == 0
        assert marker.exists()
        ready_line = rf"moldau ready on {node.address} \(node 1, cluster \S+, data in \S+\)\n"
        assert re.fullmatch(ready_line, node.output), node.output
        assert [line.rpartition(": ")[2] for line in node.errors.splitlines()[-3:]] == [
            "stopping",
            "node 1 is no longer the active controller",
            "stopped",
        ]


def test_a_second_signal_forces_and_the_next_start_recovers(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1})
            assert produce(client, "kept", b"a")[0] == 0
        assert node.process is not None
        # Both arrive before it has had time to stop.
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            node.process.send_signal(number)
        assert node.process.wait(DEADLINE_S) not in {0, -signal.SIGTERM, -signal.SIGINT}
        assert "stopped immediately" in node.errors
        assert not (node.log_folder / CLEAN_STOP_FILE).exists()
        node.start()
        with WireClient(node.address) as client:
            assert read_all(client, "kept") == [b"a"]
        assert node.stop() == 0


def test_a_second_signal_forces_while_the_stop_waits_for_the_disk(tmp_path: Path) -> None:
    (tmp_path / "workshop").mkdir()
    disk = FailingSync(tmp_path / "workshop", tmp_path)
    with RunningNode(tmp_path, prefix=disk.prefix) as node:
        node.start()
        assert node.process is not None
        disk.hang()
        node.process.send_signal(signal.SIGTERM)
        # The signals could be merged into one, if the node was at the disk just before the first.
        wait_for(lambda: " stopping" in node.errors, "the signal to arrive")
        wait_for(lambda: disk.is_hanging, "the stop to sync its files")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(DEADLINE_S) == 1
        assert "stopped immediately" in node.errors


def test_a_client_that_waits_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"quiet": 1})
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topic = FetchTopic(topic="quiet", partitions=[wanted])
            client.send(FetchRequest(max_wait_ms=300_000, min_bytes=1, topics=[topic]), 12)
            assert node.stop() == 0


def test_under_nohup_a_closed_terminal_does_not_stop_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = ["nohup", *COMMAND, "start", "--ephemeral", "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            wait_for(ready.exists, "the ready file")
            process.send_signal(signal.SIGHUP)
            with WireClient(ready.read_text().strip()) as client:
                assert client.ask(ApiVersionsRequest(), 0).error_code == 0
            assert process.poll() is None
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
