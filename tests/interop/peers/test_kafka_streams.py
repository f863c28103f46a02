"""Kafka Streams counts words exactly once, although instances or the node are stopped or killed."""

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from interop.apache import LOGGING, SMALL_JVM, ApacheOracle, ApacheUnavailableError, require_tool
from interop.live_broker import LiveNode
from interop.missing import CACHE, give_up
from interop.peers.toolchains import streams_word_count
from support.waiting import wait_for

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

LINES = 3_000
WORDS_PER_LINE = 6
VOCABULARY = tuple(f"word{number}" for number in range(60))
STOP_TIMEOUT_S = 60
COUNT_TIMEOUT_S = 180
INPUT = "lines"
OUTPUT = "counts"
INPUTS = 3
OUTPUTS = 2


@pytest.fixture(scope="module")
def classpath(apache: ApacheOracle) -> str:
    try:
        return streams_word_count(CACHE, apache.jar_folder)
    except ApacheUnavailableError as reason:
        give_up(reason, "Kafka Streams needs a JDK and Maven")


class Application:
    """The word count in a JVM of its own; its stores are in `folder`."""

    def __init__(self, classpath: str, node: LiveNode, folder: Path) -> None:
        self.log = folder / "streams.log"
        command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-cp", classpath, "WordCount", node.address, "word-count", INPUT, OUTPUT]
        folder.mkdir(exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(folder / "stores")],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> None:
        """Closes its input, which ends the application."""
        self._process.communicate(timeout=STOP_TIMEOUT_S)
        assert self._process.returncode == 0, self.said()
        assert "\nCLOSED\n" in self.said()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def said(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
def start_counting(classpath: str, tmp_path: Path) -> Iterator[Callable[[LiveNode], Application]]:
    """Starts instances, each with stores of its own; all end with the test."""
    made: list[Application] = []

    def start(node: LiveNode) -> Application:
        made.append(Application(classpath, node, tmp_path / f"instance-{len(made)}"))
        return made[-1]

    yield start
    for application in made:
        application.kill()


def lines() -> list[str]:
    chance = random.Random(2026)
    return [" ".join(chance.choices(VOCABULARY, k=WORDS_PER_LINE)) for _ in range(LINES)]


def feed(producer: Any, wanted: Sequence[str]) -> None:
    for number, line in enumerate(wanted):
        producer.produce(INPUT, line, partition=number % INPUTS)
        producer.poll(0)


def counts(node: LiveNode) -> dict[str, list[int]]:
    """Each word's counts, as a read_committed consumer gets them."""
    names = [TopicPartition(OUTPUT, index) for index in range(OUTPUTS)]
    found: dict[str, list[int]] = {}
    for records in node.read(names, committed=True).values():
        for record in records:
            assert record.key is not None
            assert record.value is not None
            found.setdefault(record.key.decode(), []).append(int(record.value))
    return found


def wait_for_total(node: LiveNode, total: int, application: Application) -> None:
    """Waits until `total` words are counted."""

    def counted() -> bool:
        return sum(values[-1] for values in counts(node).values()) >= total

    try:
        wait_for(counted, f"{total} words", COUNT_TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(application.said()[-4000:]) from error


@pytest.mark.parametrize("interrupted", ["node-stopped", "node-killed", "application-killed"])
def test_streams_counts_every_word_exactly_once(
    start_node: Callable[[], LiveNode],
    start_counting: Callable[[LiveNode], Application],
    interrupted: str,
) -> None:
    node = start_node()
    node.create_topic(INPUT, INPUTS)
    node.create_topic(OUTPUT, OUTPUTS)
    producer = node.producer(enable_idempotence=True, linger_ms=20)
    wanted = lines()
    half = LINES // 2
    application = start_counting(node)
    feed(producer, wanted[:half])
    wait_for_total(node, half * WORDS_PER_LINE // 4, application)
    feed(producer, wanted[half:])
    if interrupted == "application-killed":
        application.kill()
        # The next instance has no stores, but their changelog.
        application = start_counting(node)
    else:
        (node.stop if interrupted == "node-stopped" else node.kill)()
        node.start()
    assert producer.flush(COUNT_TIMEOUT_S) == 0
    wait_for_total(node, LINES * WORDS_PER_LINE, application)
    application.stop()
    found = counts(node)
    assert {word: values[-1] for word, values in found.items()} == Counter(" ".join(wanted).split())
    # No count is sent twice, and none decreases.
    assert all(values == sorted(set(values)) for values in found.values())
