"""Apache's copier writes what it reads, in transactions that it often aborts, exactly once."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from interop.apache import LOGGING, SMALL_JVM, ApacheOracle, require_tool
from interop.live_broker import LiveNode
from interop.peers.java_tools import PACKAGE
from support.waiting import wait_for

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

SOURCE, TARGET = "source", "target"
PARTITIONS = 2
RECORDS = 2_000
RECORDS_PER_TRANSACTION = 50
COPY_TIMEOUT_S = 150

Values = list[list[bytes | None]]


class Copier:
    """One process; a second one with the same id takes over from the first."""

    def __init__(self, apache: ApacheOracle, node: LiveNode, number: int, *options: str) -> None:
        command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-cp", f"{apache.jar_folder}/*", f"{PACKAGE}.TransactionalMessageCopier"]
        arguments = {
            "--broker-list": node.address,
            "--input-topic": SOURCE,
            "--input-partition": str(number),
            "--output-topic": TARGET,
            "--transactional-id": f"copier-{number}",
            "--consumer-group": "copiers",
            "--transaction-size": str(RECORDS_PER_TRANSACTION),
        }
        command += [part for argument in arguments.items() for part in argument]
        self._process = subprocess.Popen(
            [*command, "--enable-random-aborts", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        """Wait until everything is copied."""
        _, errors = self._process.communicate(timeout=COPY_TIMEOUT_S)
        assert self._process.returncode == 0, errors[-4000:]

    def kill(self) -> None:
        self._process.kill()
        if self._process.stderr is not None and not self._process.stderr.closed:
            self._process.communicate()


@pytest.fixture
def start_copier(apache: ApacheOracle) -> Iterator[Callable[..., Copier]]:
    """Starts copiers; all end with the test."""
    made: list[Copier] = []

    def start(node: LiveNode, number: int, *options: str) -> Copier:
        made.append(Copier(apache, node, number, *options))
        return made[-1]

    yield start
    for copier in made:
        copier.kill()


def filled(node: LiveNode) -> Values:
    """Creates the topics and returns the records to copy, by partition."""
    node.create_topic(SOURCE, PARTITIONS)
    node.create_topic(TARGET, PARTITIONS)
    values: Values = [[b"%d-%05d" % (n, place) for place in range(RECORDS)] for n in range(2)]
    producer = node.producer(enable_idempotence=True, linger_ms=20)
    for number, wanted in enumerate(values):
        for value in wanted:
            producer.produce(SOURCE, value, partition=number)
            producer.poll(0)
    assert producer.flush(COPY_TIMEOUT_S) == 0
    return values


def copied(node: LiveNode, *, committed: bool = True) -> Values:
    names = [TopicPartition(TARGET, index) for index in range(PARTITIONS)]
    served = node.read(names, committed=committed)
    return [[record.value for record in served[name]] for name in names]


def wait_until_at_work(node: LiveNode) -> None:
    """Waits until each partition has some of its records, and none has all."""

    def at_work() -> bool:
        counts = [len(values) for values in copied(node)]
        assert max(counts) < RECORDS, "there is too little to copy"
        return min(counts) > RECORDS_PER_TRANSACTION

    wait_for(at_work, "the copiers to be at work", COPY_TIMEOUT_S)


@pytest.mark.parametrize(
    ("killed", "mode"),
    [("node", ()), ("copier", ("--group-mode", "--use-group-metadata"))],
    ids=["node-killed", "member-killed"],
)
def test_a_topic_is_copied_exactly_once(
    start_node: Callable[[], LiveNode],
    start_copier: Callable[..., Copier],
    killed: str,
    mode: tuple[str, ...],
) -> None:
    node = start_node()
    wanted = filled(node)
    first, second = (start_copier(node, number, *mode) for number in range(PARTITIONS))
    wait_until_at_work(node)
    if killed == "node":
        node.kill()
        node.start()
    else:
        first.kill()
        first = start_copier(node, 0, *mode)
    first.finish()
    second.finish()
    assert copied(node) == wanted
    everything = copied(node, committed=False)
    assert sum(map(len, everything)) > PARTITIONS * RECORDS, "nothing was aborted"
