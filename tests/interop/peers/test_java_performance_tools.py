"""Apache's performance tools run to their end with the right counts; speed is not judged."""

import re
from collections.abc import Iterator

import pytest
from interop.peers.java_tools import (
    CONFIGS,
    OFFSETS,
    PACKAGE,
    TOPICS,
    TRANSACTIONS,
    JavaTools,
    table,
)

pytestmark = pytest.mark.interop

RECORDS = 20_000


def total(tools: JavaTools, topic: str) -> int:
    lines = tools.run(OFFSETS, "--topic", topic).splitlines()
    return sum(int(line.rsplit(":", 1)[1]) for line in lines)


@pytest.mark.parametrize("acks", ["1", "all"])
def test_the_perf_consumer_gets_the_records_of_the_perf_producer(
    tools: JavaTools, name: str, acks: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    amount = ["--num-records", str(RECORDS), "--topic", name]
    tuning = [f"acks={acks}", "linger.ms=5", "batch.size=65536", "compression.type=lz4"]
    options = [part for each in tuning for part in ("--command-property", each)]
    size = ["--record-size", "100", "--throughput", "-1"]
    sent = tools.run(f"{PACKAGE}.ProducerPerformance", *amount, *size, *options)
    assert sent.splitlines()[-1].startswith(f"{RECORDS} records sent, ")
    assert total(tools, name) == RECORDS

    summary = tools.run(f"{PACKAGE}.ConsumerPerformance", *amount, "--timeout", "60000")
    _, figures = summary.strip().splitlines()
    assert int(figures.split(", ")[4]) == RECORDS


def test_the_latency_tool_gets_each_record_back(tools: JavaTools, name: str) -> None:
    amount = ["--num-records", "300", "--record-size", "100"]
    output = tools.run(
        f"{PACKAGE}.EndToEndLatency", "--topic", name, *amount, "--producer-acks", "all"
    )
    assert "Will create topic with 1 partition(s) and replication factor = 1" in output
    assert re.search(r"^Avg latency: \d+\.\d+ ms$", output, re.MULTILINE)
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+$", output, re.MULTILINE)
    assert total(tools, name) == 300


def test_an_idempotent_producer_is_described(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    amount = ["--num-records", "100", "--record-size", "10", "--throughput", "-1"]
    tools.run(f"{PACKAGE}.ProducerPerformance", "--topic", name, *amount)
    place = ["describe-producers", "--topic", name, "--partition", "0"]
    (row,) = table(tools.run(TRANSACTIONS, *place))
    assert int(row["ProducerId"]) >= 0
    assert row["ProducerEpoch"] == "0"
    assert row["LatestCoordinatorEpoch"] == "-1"
    assert row["LastSequence"] == "99"
    assert row["CurrentTransactionStartOffset"] == "None"


@pytest.fixture
def small_segments(tools: JavaTools) -> Iterator[None]:
    """Topics created during the test get segments small enough to be compacted soon."""
    alter = ["--entity-type", "brokers", "--entity-default", "--alter"]
    tools.run(CONFIGS, *alter, "--add-config", "log.segment.bytes=1048576")
    yield
    tools.run(CONFIGS, *alter, "--delete-config", "log.segment.bytes")


@pytest.mark.usefixtures("small_segments")
def test_a_compacted_topic_keeps_the_last_value_of_each_key(tools: JavaTools) -> None:
    options = ["--messages", "150000", "--topics", "1", "--percent-deletes", "10", "--sleep", "5"]
    output = tools.run(f"{PACKAGE}.LogCompactionTester", *options)
    assert "Data verification is completed" in output
    counts = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", output)
    assert counts is not None
    assert int(counts[1]) == 150_000
    assert int(counts[2]) < int(counts[1]), "nothing was compacted"
