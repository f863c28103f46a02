"""Apache's verifiable clients and its test of client compatibility."""

import json
from typing import Any

import pytest
from interop.peers.java_tools import OFFSETS, PACKAGE, TOPICS, JavaTools
from interop.peers.later import reason_to_wait

pytestmark = pytest.mark.interop

MESSAGES = 2000


def events(lines: list[str], name: str) -> list[dict[str, Any]]:
    parsed = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in parsed if event["name"] == name]


def test_the_verifiable_consumer_gets_what_the_verifiable_producer_sent(
    tools: JavaTools, name: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "3")
    amount = ["--topic", name, "--max-messages", str(MESSAGES)]
    keys = ["--acks", "-1", "--repeating-keys", "7", "--value-prefix", "5"]
    lines = tools.in_own_jvm(f"{PACKAGE}.VerifiableProducer", *amount, *keys)
    sent = {
        (event["partition"], event["offset"]): event["value"]
        for event in events(lines, "producer_send_success")
    }
    assert len(sent) == MESSAGES
    assert events(lines, "producer_send_error") == []
    (summary,) = events(lines, "tool_data")
    assert (summary["sent"], summary["acked"]) == (MESSAGES, MESSAGES)
    assert len(events(lines, "shutdown_complete")) == 1

    group = ["--group-id", name, "--verbose", "--reset-policy", "earliest"]
    lines = tools.in_own_jvm(f"{PACKAGE}.VerifiableConsumer", *amount, *group)
    (assigned,) = events(lines, "partitions_assigned")
    assert {each["partition"] for each in assigned["partitions"]} == {0, 1, 2}
    got = {
        (event["partition"], event["offset"]): event["value"]
        for event in events(lines, "record_data")
    }
    assert got == sent
    committed = {
        each["partition"]: each["offset"]
        for event in events(lines, "offsets_committed")
        if event["success"]
        for each in event["offsets"]
    }
    ends = [line.split(":") for line in tools.run(OFFSETS, "--topic", name).splitlines()]
    assert committed == {int(index): int(offset) for _, index, offset in ends if offset != "0"}


@pytest.mark.parametrize(
    "strategy",
    ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"],
)
def test_the_verifiable_consumer_works_with_every_assignor(
    tools: JavaTools, name: str, strategy: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    amount = ["--topic", name, "--max-messages", "50"]
    tools.in_own_jvm(f"{PACKAGE}.VerifiableProducer", *amount)
    assignor = ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{strategy}"]
    static = ["--group-instance-id", "station-1", "--enable-autocommit"]
    group = ["--group-id", name, *static, "--reset-policy", "earliest"]
    lines = tools.in_own_jvm(f"{PACKAGE}.VerifiableConsumer", *amount, *group, *assignor)
    assert sum(event["count"] for event in events(lines, "records_consumed")) == 50
    assert len(events(lines, "shutdown_complete")) == 1


def test_the_client_compatibility_test_finds_everything_supported(
    tools: JavaTools, name: str
) -> None:
    lacks_acls = tools.server.is_moldau and reason_to_wait("api", "DescribeAcls(29)") is not None
    options = {
        "--topic": name,
        "--offsets-for-times-supported": "True",
        "--cluster-id-supported": "True",
        "--expect-record-too-large-exception": "False",
        "--num-cluster-nodes": "1",
        "--create-topics-supported": "True",
        "--describe-acls-supported": str(not lacks_acls),
        "--describe-configs-supported": "True",
        "--idempotent-producer-supported": "True",
    }
    # One partition, so that the tool's two messages are read in order.
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    arguments = [part for option in options.items() for part in option]
    assert tools.run(f"{PACKAGE}.ClientCompatibilityTest", *arguments) == "SUCCESS.\n"
    tools.run(TOPICS, "--delete", "--topic", "newtopic")
