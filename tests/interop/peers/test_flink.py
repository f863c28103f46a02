"""Flink copies a topic exactly once, although one of its tasks fails and the node is killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.live_broker import CLIENT_TIMEOUT_S, LiveNode
from interop.missing import CACHE, give_up
from interop.peers.java_program import JavaProgram
from interop.peers.toolchains import flink_copy

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

RECORDS = 6_000
INPUTS = 2


@pytest.fixture(scope="module")
def classpath(apache: ApacheOracle) -> str:
    try:
        return flink_copy(CACHE, apache.jar_folder)
    except ApacheUnavailableError as reason:
        give_up(reason, "Flink needs a JDK and Maven")


def copied(node: LiveNode) -> list[int]:
    name = TopicPartition("copy", 0)
    found = node.read([name], committed=True)[name]
    return [int(record.value) for record in found if record.value is not None]


@pytest.mark.parametrize("is_killed", [False, True], ids=["task-failed", "node-killed-too"])
def test_flink_copies_every_record_exactly_once(
    start_node: Callable[[], LiveNode], classpath: str, tmp_path: Path, *, is_killed: bool
) -> None:
    node = start_node()
    node.create_topic("numbers", INPUTS)
    node.create_topic("copy")
    producer = node.producer(linger_ms=20)
    for number in range(RECORDS):
        producer.produce("numbers", str(number), partition=number % INPUTS)
        producer.poll(0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    places = [node.address, "numbers", "copy", (tmp_path / "checkpoints").as_uri()]
    with JavaProgram(classpath, "FlinkCopy", tmp_path / "flink.log", *places) as job:
        job.wait_for(lambda: len(copied(node)) > 0, "the first checkpoint")
        if is_killed:
            node.kill()
            node.start()
        job.finish()
    said = job.log.read_text()
    assert "FAILED\n" in said
    assert "DONE\n" in said
    assert sorted(copied(node)) == list(range(RECORDS))
