"""Apache's TransactionsCommand with each of its commands, and `moldau transactions` on the same
node: they print the same, and each ends the transactions that the other finds.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cli.hanging import TIMEOUT_S, transactional, write_unannounced
from cli.kafka_command import KafkaCommand
from interop.peers.java_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    TOPICS,
    TRANSACTIONS,
    JavaTools,
    table,
)
from support.waiting import wait_for

pytestmark = pytest.mark.interop

HOUR_MS = 3_600_000
# Columns of Apache's tool, and the names in our JSON.
LISTED = {
    "TransactionalId": "transactionalId",
    "Coordinator": "coordinator",
    "ProducerId": "producerId",
    "TransactionState": "state",
}
DESCRIBED = {
    "CoordinatorId": "coordinator",
    "TransactionalId": "transactionalId",
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "TransactionState": "state",
    "TransactionTimeoutMs": "timeoutMs",
    "CurrentTransactionStartTimeMs": "startTimeMs",
}
PRODUCERS = {
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "LatestCoordinatorEpoch": "coordinatorEpoch",
    "LastSequence": "lastSequence",
    "LastTimestamp": "lastTimestampMs",
    "CurrentTransactionStartOffset": "startOffset",
}
HANGING = {
    "Topic": "topic",
    "Partition": "partition",
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "CoordinatorEpoch": "coordinatorEpoch",
    "StartOffset": "startOffset",
    "LastTimestamp": "lastTimestampMs",
}
Cells = list[tuple[str, ...]]


@pytest.fixture
def kafka(tools: JavaTools) -> KafkaCommand:
    return KafkaCommand(tools.server.address)


@pytest.fixture
def unverified(tools: JavaTools) -> Iterator[None]:
    """Brokers that accept late transactional writes without verification, as before 3.6."""
    entity = ["--entity-type", "brokers", "--entity-default", "--alter"]
    setting = "transaction.partition.verification.enable"
    tools.run(CONFIGS, *entity, "--add-config", f"{setting}=false")
    yield
    tools.run(CONFIGS, *entity, "--delete-config", setting)


def theirs(tools: JavaTools, *arguments: object) -> list[dict[str, str]]:
    return table(tools.run(TRANSACTIONS, *map(str, arguments)))


def ours(kafka: KafkaCommand, *arguments: object) -> list[dict[str, Any]]:
    rows = kafka.json("transactions", *arguments)
    assert isinstance(rows, list)
    return rows


def committed(tools: JavaTools, topic: str) -> list[str]:
    options = ["--topic", topic, "--from-beginning", "--timeout-ms", "2000"]
    isolation = ["--isolation-level", "read_committed"]
    return tools.attempt(CONSOLE_CONSUMER, *options, *isolation).output.splitlines()


def same(
    their_rows: list[dict[str, str]], our_rows: list[dict[str, Any]], columns: dict[str, str]
) -> Cells:
    """The sorted output of both."""
    printed = sorted(tuple(row[head] for head in columns) for row in their_rows)
    assert printed == sorted(
        tuple("None" if row[name] is None else str(row[name]) for name in columns.values())
        for row in our_rows
    )
    return printed


def test_lists_are_the_same(tools: JavaTools, kafka: KafkaCommand, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name)
    with (
        transactional(tools.server.address, f"{name}-open") as producer,
        transactional(tools.server.address, f"{name}-idle"),
    ):
        producer.begin_transaction()
        producer.produce(name, "a")
        assert producer.flush(TIMEOUT_S) == 0
        for their_options, our_options, found in (
            ((), (), {"open", "idle"}),
            (
                ("--transactional-id-pattern", f"{name}-.*"),
                ("--pattern", f"{name}-.*"),
                {"open", "idle"},
            ),
            (("--transactional-id-pattern", ".*-[^-]+n"), ("--pattern", ".*-[^-]+n"), {"open"}),
            (("--duration-filter", "0"), ("--longer-than", "0ms"), {"open", "idle"}),
            (("--duration-filter", "3600000"), ("--longer-than", "1h"), {"idle"}),
        ):
            rows = same(
                theirs(tools, "list", *their_options), ours(kafka, "list", *our_options), LISTED
            )
            assert {row[0] for row in rows if name in row[0]} == {f"{name}-{x}" for x in found}
        said = tools.refused(TRANSACTIONS, "list", "--transactional-id-pattern", "(")
        assert "Failed to list transactions" in said
        producer.abort_transaction(TIMEOUT_S)


def test_descriptions_are_the_same(tools: JavaTools, kafka: KafkaCommand, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "3")
    with transactional(tools.server.address, name, transaction_timeout_ms=50_000) as producer:
        _same_description(tools, kafka, name)
        for partition in (2, 0):
            producer.begin_transaction()
            producer.produce(name, "a", partition=partition)
            producer.produce(name, "a", partition=1)
            assert producer.flush(TIMEOUT_S) == 0
            _same_description(tools, kafka, name)
            for number in range(3):
                _same_producers(tools, kafka, name, number)
            producer.commit_transaction(TIMEOUT_S)
        wait_for(lambda: ours(kafka, "describe", name)[0]["state"] == "CompleteCommit", "markers")
        _same_description(tools, kafka, name)
    said = tools.refused(TRANSACTIONS, "describe", "--transactional-id", "nobody")
    assert "could not be found" in said


def _same_description(tools: JavaTools, kafka: KafkaCommand, name: str) -> None:
    output = tools.run(TRANSACTIONS, "describe", "--transactional-id", name)
    head, cells = (line.split("\t") for line in output.splitlines())
    their_row = {key.strip(): cell.strip() for key, cell in zip(head, cells, strict=True)}
    (our_row,) = ours(kafka, "describe", name)
    same([their_row], [our_row], DESCRIBED)
    partitions = {f"{row['topic']}-{row['partition']}" for row in our_row["partitions"]}
    assert partitions == set(filter(None, their_row["TopicPartitions"].split(",")))


def _same_producers(tools: JavaTools, kafka: KafkaCommand, topic: str, number: int) -> None:
    place = ("--topic", topic, "--partition", number)
    same(
        theirs(tools, "describe-producers", *place),
        ours(kafka, "describe-producers", f"{topic}:{number}"),
        PRODUCERS,
    )


@pytest.mark.usefixtures("unverified")
def test_hanging_transactions_are_found_and_ended_by_both(
    tools: JavaTools, kafka: KafkaCommand, name: str
) -> None:
    address = tools.server.address
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    written_ms = time.time_ns() // 1_000_000 - HOUR_MS
    for partition in (0, 1):
        write_unannounced(address, name, partition, written_ms)

    def both(their_options: tuple[object, ...], our_options: tuple[object, ...]) -> int:
        their_rows = theirs(tools, "find-hanging", *their_options)
        rows = same(their_rows, ours(kafka, "find-hanging", *our_options), HANGING)
        assert all(row["Duration(min)"] == "60" for row in their_rows if row["Topic"] == name)
        return sum(row[0] == name for row in rows)

    assert both(("--topic", name), (name,)) == 2
    assert both(("--broker-id", 1), ("--broker", 1)) == 2
    assert both(("--topic", name, "--partition", 1), (f"{name}:1",)) == 1
    long = ("--max-transaction-timeout", 90)
    assert both(("--topic", name, *long), (name, "--longer-than", "90m")) == 0

    place = ("abort", "--topic", name, "--partition", "0", "--start-offset")
    said = tools.refused(TRANSACTIONS, *place, "7")
    assert "Could not find any open transactions starting at offset 7" in said
    tools.run(TRANSACTIONS, *place, "0")
    kafka("transactions", "abort", f"{name}:1", "--start-offset", 0, "--yes")
    assert both(("--topic", name), (name,)) == 0
    again = write_unannounced(address, name, 0, written_ms)
    old_way = ("--producer-id", str(again), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    tools.run(TRANSACTIONS, "abort", "--topic", name, "--partition", "0", *old_way)
    assert both(("--topic", name), (name,)) == 0
    assert committed(tools, name) == []


def test_transactions_are_terminated_by_both(
    tools: JavaTools, kafka: KafkaCommand, name: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name)

    def terminate_by_theirs() -> None:
        tools.run(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", name)

    def terminate_by_ours() -> None:
        kafka("transactions", "force-terminate", name, "--yes")

    for terminate in (terminate_by_theirs, terminate_by_ours):
        with transactional(tools.server.address, name) as producer:
            producer.begin_transaction()
            producer.produce(name, "torn away")
            assert producer.flush(TIMEOUT_S) == 0
            terminate()
            wait_for(lambda: ours(kafka, "describe", name)[0]["state"] == "Empty", "the abort")
            with pytest.raises(Exception, match=r"(?i)fenced"):
                producer.commit_transaction(TIMEOUT_S)
    assert committed(tools, name) == []
