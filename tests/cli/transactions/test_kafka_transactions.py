"""`moldau transactions`: open transactions, producers, hanging transactions, and ending them."""

import time
from typing import Any

import pytest
from cli.hanging import TIMEOUT_S, transactional, write_unannounced
from cli.kafka_command import KafkaCommand, fresh
from support.waiting import wait_for

HOUR_MS = 3_600_000


def listed(kafka: KafkaCommand, *options: object) -> dict[str, dict[str, Any]]:
    return {row["transactionalId"]: row for row in kafka.json("transactions", "list", *options)}


def described(kafka: KafkaCommand, transactional_id: str) -> dict[str, Any]:
    (found,) = kafka.json("transactions", "describe", transactional_id)
    assert isinstance(found, dict)
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_transaction_is_shown_until_its_end(kafka: KafkaCommand) -> None:
    topic, name = kafka.topic(2), fresh("id")
    before_ms = now_ms()
    with transactional(kafka.address, name, transaction_timeout_ms=45_000) as producer:
        empty = described(kafka, name)
        assert (empty["state"], empty["startTimeMs"], empty["partitions"]) == ("Empty", None, [])
        assert empty["timeoutMs"] == 45_000
        assert listed(kafka)[name]["state"] == "Empty"

        producer.begin_transaction()
        for partition in (1, 0):
            producer.produce(topic, "a", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        ongoing = described(kafka, name)
        assert ongoing["state"] == "Ongoing"
        assert ongoing["producerId"] == empty["producerId"] == listed(kafka)[name]["producerId"]
        assert before_ms <= ongoing["startTimeMs"] <= now_ms()
        assert 0 <= ongoing["durationMs"] <= now_ms() - before_ms
        assert ongoing["partitions"] == [
            {"topic": topic, "partition": 0},
            {"topic": topic, "partition": 1},
        ]
        assert ongoing["coordinator"] == listed(kafka)[name]["coordinator"]
        lines = kafka("transactions", "describe", name).lines
        assert lines[0] == name
        assert lines[1].split() == ["state", "Ongoing"]
        assert lines[-1].split() == ["partition", f"{topic}-1"]

        producer.commit_transaction(TIMEOUT_S)
        wait_for(lambda: described(kafka, name)["state"] == "CompleteCommit", "the markers")
        assert described(kafka, name)["partitions"] == []
        producer.begin_transaction()
        producer.produce(topic, "b")
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)
        wait_for(lambda: described(kafka, name)["state"] == "CompleteAbort", "the markers")


def test_the_list_is_narrowed_by_state_producer_age_and_pattern(kafka: KafkaCommand) -> None:
    topic, name = kafka.topic(), fresh("narrow")
    with (
        transactional(kafka.address, f"{name}-open") as producer,
        transactional(kafka.address, f"{name}-idle"),
    ):
        producer.begin_transaction()
        producer.produce(topic, "a")
        assert producer.flush(TIMEOUT_S) == 0
        everything = listed(kafka)
        both = {f"{name}-open", f"{name}-idle"}
        assert both <= set(everything)

        assert f"{name}-idle" in listed(kafka, "--state", "empty,prepare-commit")
        assert f"{name}-open" not in listed(kafka, "--state", "empty,prepare-commit")
        assert f"{name}-open" in listed(kafka, "--state", "Ongoing")
        producer_id = everything[f"{name}-open"]["producerId"]
        assert set(listed(kafka, "--producer-id", producer_id)) == {f"{name}-open"}
        assert f"{name}-open" not in listed(kafka, "--longer-than", "1h")
        assert f"{name}-open" in listed(kafka, "--longer-than", "1ms")

        assert set(listed(kafka, "--pattern", f"{name}-.*")) == both
        assert set(listed(kafka, "--pattern", f"{name}-(open|shut)")) == {f"{name}-open"}
        assert listed(kafka, "--pattern", name) == {}, "the whole id must match"
        quiet = kafka("transactions", "list", "--pattern", f"{name}-[a-n]+", "-q")
        assert quiet.lines == [f"{name}-idle"]
        producer.abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("list", "--pattern", "(open"), 1, "INVALID_REGULAR_EXPRESSION"),
        (("list", "--state", "asleep"), 2, "unknown state 'asleep'"),
        (("list", "--longer-than", "soon"), 2, "'soon' is not a duration"),
        (("describe", "missing"), 1, "transactional id 'missing' does not exist"),
        (("force-terminate", "missing", "--yes"), 1, "transactional id 'missing' does not exist"),
        (("abort", "orders"), 2, "name one partition"),
        (("abort", "orders:0"), 2, "name the transaction"),
        (("abort", "orders:0", "--producer", "1:x:2"), 2, "'1:x:2' is not a producer"),
        (("abort", "nothing-there:0", "--start-offset", 0, "--yes"), 1, "does not exist"),
        (("describe-producers", "nothing-there"), 1, "does not exist"),
        (("find-hanging", "nothing-there:7"), 1, "does not exist"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_invalid_arguments_are_an_error_of_one_line(
    kafka: KafkaCommand, options: tuple[object, ...], status: int, said: str
) -> None:
    ran = kafka("transactions", *options, status=status)
    assert said in ran.errors
    assert len(ran.errors.splitlines()) == 1


def test_the_producers_of_a_partition_are_shown(kafka: KafkaCommand) -> None:
    topic, name = kafka.topic(2), fresh("id")
    with transactional(kafka.address, name) as producer:
        producer.begin_transaction()
        producer.produce(topic, "committed", partition=0)
        producer.commit_transaction(TIMEOUT_S)
        producer.begin_transaction()
        for value in ("open", "too"):
            producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        (row,) = kafka.json("transactions", "describe-producers", f"{topic}:0")
        assert row["producerId"] == described(kafka, name)["producerId"]
        assert row["producerEpoch"] == described(kafka, name)["producerEpoch"]
        assert (row["startOffset"], row["coordinatorEpoch"]) == (2, 0)
        assert now_ms() - row["lastTimestampMs"] < HOUR_MS
        assert kafka.json("transactions", "describe-producers", topic) == [row]
        assert kafka.json("transactions", "describe-producers", topic, "--broker", 1) == [row]
        head, line = kafka("transactions", "describe-producers", f"{topic}:0").lines
        assert head.split()[:3] == ["TOPIC", "PARTITION", "PRODUCER-ID"]
        assert line.split()[:3] == [topic, "0", str(row["producerId"])]
        # A transaction that its coordinator will end does not hang.
        for options in ((), (topic,), (f"{topic}:0,1",), ("--broker", 1)):
            found = kafka.json("transactions", "find-hanging", *options, "--longer-than", "0ms")
            assert not [hanging for hanging in found if hanging["topic"] == topic]
        producer.abort_transaction(TIMEOUT_S)


def test_force_terminate_fences_the_producer_of_an_id(kafka: KafkaCommand) -> None:
    topic, name = kafka.topic(), fresh("id")
    with transactional(kafka.address, name) as producer:
        producer.begin_transaction()
        producer.produce(topic, "torn away")
        assert producer.flush(TIMEOUT_S) == 0
        epoch = described(kafka, name)["producerEpoch"]
        ran = kafka("transactions", "force-terminate", name, "--yes")
        assert ran.lines == [f"terminated {name}"]
        wait_for(lambda: described(kafka, name)["state"] == "Empty", "the abort")
        assert described(kafka, name)["producerEpoch"] > epoch
        assert kafka("consume", topic, "--committed").lines == []
        with pytest.raises(Exception, match=r"(?i)fenced"):
            producer.commit_transaction(TIMEOUT_S)


@pytest.fixture
def unverified(kafka: KafkaCommand) -> Any:
    """Brokers that accept a late write, as those before 3.6 did."""
    setting = "transaction.partition.verification.enable"
    kafka("configs", "set", "broker", "default", f"{setting}=false")
    yield
    kafka("configs", "delete", "broker", "default", setting)


@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_is_found_and_aborted(kafka: KafkaCommand) -> None:
    topic = kafka.topic(2)
    kafka.fill(topic, ["before"], "--partition", 1)
    written_ms = now_ms() - HOUR_MS
    producer_id = write_unannounced(kafka.address, topic, 1, written_ms)
    kafka.fill(topic, ["behind"], "--partition", 1)
    assert kafka("consume", topic, "--committed").lines == ["before"]

    assert kafka.json("transactions", "find-hanging", topic, "--longer-than", "2h") == []
    (found,) = kafka.json("transactions", "find-hanging", topic)
    assert found == {
        "topic": topic,
        "partition": 1,
        "producerId": producer_id,
        "producerEpoch": 0,
        "coordinatorEpoch": -1,
        "lastSequence": 0,
        "lastTimestampMs": written_ms,
        "startOffset": 1,
    }
    assert found in kafka.json("transactions", "find-hanging")
    assert found in kafka.json("transactions", "find-hanging", "--broker", 1)
    assert kafka.json("transactions", "find-hanging", f"{topic}:0") == []

    ran = kafka("transactions", "abort", f"{topic}:1", "--start-offset", 0, "--yes", status=1)
    assert "no open transaction" in ran.errors
    ran = kafka("transactions", "abort", f"{topic}:1", "--start-offset", 1, "--yes")
    assert ran.lines == [f"aborted the transaction of producer {producer_id} on {topic}-1"]
    assert kafka.json("transactions", "find-hanging", topic) == []
    assert kafka("consume", topic, "--committed").lines == ["before", "behind"]
    rows = kafka.json("transactions", "describe-producers", f"{topic}:1")
    assert {row["producerId"]: row["startOffset"] for row in rows}[producer_id] is None

    again = write_unannounced(kafka.address, topic, 0, written_ms)
    kafka("transactions", "abort", f"{topic}:0", "--producer", f"{again}:0:-1", "--yes")
    assert kafka.json("transactions", "find-hanging", topic) == []
