"""Kafka Connect copies a file into a topic, exactly once, and the topic into a file; its worker or
the node is killed in the meantime.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.live_broker import LiveNode
from interop.missing import CACHE, give_up
from interop.peers.connect_worker import ConnectWorker
from interop.peers.toolchains import connect_plugins

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

LINES = 2_000
TOPIC = "lines"


@pytest.fixture(scope="module")
def plugins() -> Path:
    try:
        return connect_plugins(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "Kafka Connect needs a JDK and Maven")


def append(file: Path, numbers: range) -> None:
    with file.open("a") as output:
        output.writelines(f"line {number}\n" for number in numbers)


def records(node: LiveNode) -> list[str]:
    found = node.read([TopicPartition(TOPIC, 0)], committed=True)[TopicPartition(TOPIC, 0)]
    return [record.value.decode() for record in found if record.value is not None]


@pytest.mark.parametrize("killed", ["worker", "node"])
def test_connect_copies_a_file_through_a_topic(
    apache: ApacheOracle,
    start_node: Callable[[], LiveNode],
    plugins: Path,
    tmp_path: Path,
    killed: str,
) -> None:
    node = start_node()
    node.create_topic(TOPIC)
    given, taken = tmp_path / "given.txt", tmp_path / "taken.txt"
    append(given, range(LINES // 2))

    def worker() -> ConnectWorker:
        return ConnectWorker(f"{apache.jar_folder}/*", node, tmp_path, plugins)

    with worker() as first:
        first.configure(
            "from-file",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(given),
                "topic": TOPIC,
                "exactly.once.support": "required",
            },
        )
        first.configure(
            "into-file",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(taken),
                "topics": TOPIC,
            },
        )
        first.wait_for(lambda: len(records(node)) >= LINES // 2, "half of the lines")
        append(given, range(LINES // 2, LINES))
        if killed == "worker":
            first.kill()
        else:
            node.kill()
            node.start()
            finish(first, node, taken)
    if killed == "worker":
        with worker() as second:
            finish(second, node, taken)
    wanted = [f"line {number}" for number in range(LINES)]
    # The source is exactly once, the sink at least once.
    assert records(node) == wanted
    assert set(taken.read_text().splitlines()) == set(wanted)


def finish(worker: ConnectWorker, node: LiveNode, taken: Path) -> None:
    last = f"line {LINES - 1}"
    worker.wait_for(lambda: last in records(node), "the last line in the topic")
    worker.wait_for(lambda: taken.exists() and last in taken.read_text(), "the last line")
    worker.stop()
