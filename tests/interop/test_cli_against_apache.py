"""Our command line on Apache Kafka 4.3.1: the scenarios that hold on Moldau hold there too, and its
output and effects equal those of Apache's own tools.
"""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.kafka_command import KafkaCommand, fresh
from confluent_kafka import Consumer, Producer
from interop.apache import ROOT, ApacheOracle
from interop.live_broker import LiveBroker
from interop.peers.java_tools import CONSUMER_GROUPS, OFFSETS, TOPICS, JavaTools
from interop.peers.servers import APACHE, Server
from support.running_node import UNDER_TEST
from support.waiting import wait_for

pytestmark = pytest.mark.interop

CLI_TESTS = ROOT / "tests" / "cli"
SCENARIOS = sorted(
    path.relative_to(CLI_TESTS).as_posix() for path in CLI_TESTS.rglob("test_kafka_*.py")
)
SCENARIOS_TIMEOUT_S = 900
BASE_MS = 1_777_000_000_000


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as running:
        running.format()
        running.start()
        yield running


@pytest.fixture(scope="module")
def kafka(node: LiveBroker) -> KafkaCommand:
    return KafkaCommand(node.address)


@pytest.fixture(scope="module")
def tools(apache: ApacheOracle, node: LiveBroker) -> JavaTools:
    return JavaTools(apache, Server(node.address, APACHE, node))


@pytest.mark.parametrize("scenarios", SCENARIOS)
def test_the_scenarios_hold_on_apache_kafka(node: LiveBroker, scenarios: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, f"tests/cli/{scenarios}"],
        cwd=ROOT,
        env=os.environ | {UNDER_TEST: node.address},
        capture_output=True,
        text=True,
        timeout=SCENARIOS_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]


def prepared(kafka: KafkaCommand) -> tuple[str, str]:
    """A topic with 10 and 5 records a second apart, its first two deleted; a group at 4 and 5."""
    topic, group = kafka.topic(2, "-c", "retention.ms=-1"), fresh("group")
    for partition, count in ((0, 10), (1, 5)):
        lines = [
            json.dumps({"value": f"{partition}/{n}", "timestamp": BASE_MS + 1000 * n})
            for n in range(count)
        ]
        kafka.fill(topic, lines, "--json", "--partition", partition)
    kafka("records", "delete", f"{topic}:0", "--before", 2, "--yes")
    for where in ((f"{topic}:0", "--to-offset", 4), (f"{topic}:1", "--to-latest")):
        kafka("groups", "reset-offsets", group, "--topic", *where, "--execute", "--yes")
    return topic, group


WAYS = [
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "3"),
    ("--to-offset", "0"),
    ("--to-offset", "7"),
    ("--to-offset", "1000"),
    ("--shift-by", "2"),
    ("--shift-by", "-3"),
    ("--shift-by", "-100"),
    ("--shift-by", "100"),
    ("--to-datetime", "2026-04-24T03:06:43.000"),
    ("--to-datetime", "2026-04-24T03:06:42.001"),
    ("--to-datetime", "2026-04-24T05:06:43.500+02:00"),
    ("--to-datetime", "2026-04-24T03:06:47.000Z"),
    ("--to-datetime", "2030-01-01T00:00:00.000"),
    ("--to-datetime", "1970-01-02T00:00:00.000"),
    ("--by-duration", "PT0S"),
    ("--by-duration", "P10DT1H30M0.5S"),
    ("--by-duration", "P20000D"),
]
SCOPES = [("--all-topics",), ("--topic", "TOPIC"), ("--topic", "TOPIC:1")]


def plan_of(output: str) -> set[tuple[str, ...]]:
    """The rows that --export prints; Apache's tool may print warnings before them."""
    rows = csv.reader(io.StringIO(output))
    return {tuple(row) for row in rows if len(row) == 3 and row[2].isdigit()}


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("scope", SCOPES, ids=" ".join)
def test_offsets_are_reset_as_apaches_tool_resets_them(
    kafka: KafkaCommand, tools: JavaTools, way: tuple[str, ...], scope: tuple[str, ...]
) -> None:
    topic, ours = prepared(kafka)
    theirs = fresh("group")
    saved = kafka("groups", "reset-offsets", ours, "--all-topics", "--to-current", "--json").output
    for row in json.loads(saved)[0]["partitions"]:
        where = (f"{topic}:{row['partition']}", "--to-offset", row["newOffset"])
        kafka("groups", "reset-offsets", theirs, "-t", *where, "--execute", "--yes")
    chosen = [part.replace("TOPIC", topic) for part in scope]
    shown = kafka("groups", "reset-offsets", ours, *chosen, *way, "--export").output
    arguments = ["--reset-offsets", "--group", theirs, *chosen, *way]
    expected = tools.run(CONSUMER_GROUPS, *arguments, "--dry-run", "--export")
    assert plan_of(shown) == plan_of(expected) != set()

    kafka("groups", "reset-offsets", ours, *chosen, *way, "--execute", "--yes")
    tools.run(CONSUMER_GROUPS, *arguments, "--execute")

    def committed(group: str) -> dict[int, int]:
        (found,) = kafka.json("groups", "describe", group)
        return {row["partition"]: row["committed"] for row in found["partitions"]}

    assert committed(ours) == committed(theirs)


def test_plans_are_exchanged_with_apaches_tool(
    kafka: KafkaCommand, tools: JavaTools, tmp_path: Path
) -> None:
    topic, group = prepared(kafka)
    plan = tmp_path / "plan.csv"
    options = ("groups", "reset-offsets", group, "--all-topics")
    plan.write_text(kafka(*options, "--to-offset", 3, "--export").output)
    reset = ("--reset-offsets", "--group", group)
    tools.run(CONSUMER_GROUPS, *reset, "--from-file", str(plan), "--execute")
    rows = kafka.json("groups", "describe", group)[0]["partitions"]
    assert [row["committed"] for row in rows] == [3, 3]
    exported = tools.run(
        CONSUMER_GROUPS, *reset, "--all-topics", "--to-latest", "--dry-run", "--export"
    )
    plan.write_text("".join(f"{','.join(row)}\n" for row in plan_of(exported)))
    kafka("groups", "reset-offsets", group, "--from-file", plan, "--execute", "--yes")
    rows = kafka.json("groups", "describe", group)[0]["partitions"]
    assert [row["committed"] for row in rows] == [10, 5]
    assert topic in exported


def test_lag_equals_that_of_apaches_tool(kafka: KafkaCommand, tools: JavaTools) -> None:
    _, group = prepared(kafka)
    printed = tools.run(CONSUMER_GROUPS, "--describe", "--group", group)
    theirs = [line.split()[1:6] for line in printed.splitlines() if line.startswith(group)]
    (found,) = kafka.json("groups", "describe", group)
    ours = [
        [row["topic"], *(str(row[name]) for name in ("partition", "committed", "logEnd", "lag"))]
        for row in found["partitions"]
    ]
    assert sorted(ours) == sorted(theirs)
    assert found["totalLag"] == 6


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("earliest", "-2"), ("latest", "-1"), ("max-timestamp", "-3"), (str(BASE_MS + 3000),) * 2],
)
def test_offsets_equal_those_of_apaches_tool(
    kafka: KafkaCommand, tools: JavaTools, ours: str, theirs: str
) -> None:
    topic, _ = prepared(kafka)
    printed = tools.run(OFFSETS, "--topic", topic, "--time", theirs)
    found = kafka.json("offsets", topic, "--at", ours)
    assert sorted(f"{row['topic']}:{row['partition']}:{row['offset']}" for row in found) == sorted(
        printed.split()
    )


def test_topics_equal_those_of_apaches_tool(kafka: KafkaCommand, tools: JavaTools) -> None:
    topic, _ = prepared(kafka)
    printed = tools.run(TOPICS, "--describe", "--topic", topic)
    (found,) = kafka.json("topics", "describe", topic)
    assert f"TopicId: {found['topicId']}" in printed
    assert f"PartitionCount: {len(found['partitions'])}" in printed
    for name, value in found["configs"].items():
        assert f"{name}={value}" in printed
    for row in found["partitions"]:
        assert f"Partition: {row['partition']}\tLeader: {row['leader']}" in printed


def test_only_committed_transactions_are_shown_on_request(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    producer = Producer(
        {"bootstrap.servers": kafka.address, "transactional.id": fresh("id"), "log_level": 0}
    )
    producer.init_transactions()
    for value, is_committed in (("one", True), ("two", False), ("three", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        if is_committed:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    assert kafka("consume", topic).lines == ["one", "two", "three"]
    assert kafka("consume", topic, "--committed").lines == ["one", "three"]
    producer.begin_transaction()
    producer.produce(topic, "still open")
    producer.flush()
    assert kafka("consume", topic, "--committed").lines == ["one", "three"]
    (row,) = kafka.json("offsets", topic, "--committed")
    (whole,) = kafka.json("offsets", topic)
    assert row["latest"] == whole["latest"] - 1
    producer.abort_transaction()


def test_a_group_of_the_new_protocol_is_described(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(2), fresh("group")
    kafka.fill(topic, ["1", "2", "3"])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        received: list[object] = []

        def has_read() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                received.append(message.value())
            return len(received) == 3

        wait_for(has_read, "three records")
        consumer.commit(asynchronous=False)
        (found,) = kafka.json("groups", "describe", group)
        assert (found["type"], found["state"], found["totalLag"]) == ("Consumer", "Stable", 0)
        (only,) = found["members"]
        assert [row["partition"] for row in only["assignment"]] == [0, 1]
        assert only["targetAssignment"] == only["assignment"]
        listed = kafka.json("groups", "list", "--type", "consumer")
        assert group in [row["groupId"] for row in listed]
    finally:
        consumer.close()
    options = ("reset-offsets", group, "-t", topic, "--to-earliest", "--execute", "--yes")
    kafka("groups", *options)
    assert kafka.json("groups", "describe", group)[0]["totalLag"] == 3
