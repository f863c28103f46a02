"""Apache's other tools: most need features that Moldau does not serve yet, and wait in
the table.
"""

import json
from pathlib import Path

import pytest
from interop.peers.java_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    OFFSETS,
    PACKAGE,
    TOPICS,
    TRANSACTIONS,
    JavaTools,
    table,
)

pytestmark = pytest.mark.interop

REASSIGN = f"{PACKAGE}.reassign.ReassignPartitionsCommand"


def fill(tools: JavaTools, topic: str) -> None:
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", topic, stdin=b"a\nb\n")


def test_transactions_are_listed_and_described(tools: JavaTools, name: str) -> None:
    fill(tools, name)
    amount = ["--topic", name, "--num-records", "100", "--record-size", "10", "--throughput", "-1"]
    transaction = ["--transactional-id", name, "--transaction-duration-ms", "100"]
    tools.run(f"{PACKAGE}.ProducerPerformance", *amount, *transaction)
    rows = table(tools.run(TRANSACTIONS, "list"))
    (row,) = [each for each in rows if each["TransactionalId"] == name]
    assert row["TransactionState"] == "CompleteCommit"
    assert tools.run(TRANSACTIONS, "find-hanging", "--broker-id", "1").split()[:1] == ["Topic"]
    isolated = ["--isolation-level", "read_committed", "--from-beginning", "--timeout-ms", "30000"]
    output = tools.run(CONSOLE_CONSUMER, "--topic", name, *isolated, "--max-messages", "102")
    assert len(output.splitlines()) == 102


def test_a_consumer_of_the_new_protocol_reads(tools: JavaTools, name: str) -> None:
    fill(tools, name)
    protocol = ["--command-property", "group.protocol=consumer", "--group", name]
    limits = ["--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"]
    output = tools.run(CONSOLE_CONSUMER, "--topic", name, *protocol, *limits)
    assert output.splitlines() == ["a", "b"]
    types = table(tools.run(CONSUMER_GROUPS, "--list", "--type"))
    assert {"GROUP": name, "TYPE": "Consumer"} in types


def test_a_share_group_is_listed_and_its_offsets_reset(tools: JavaTools, name: str) -> None:
    fill(tools, name)
    command = f"{PACKAGE}.consumer.group.ShareGroupCommand"
    reset = ["--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute"]
    entity = ["--entity-type", "groups", "--entity-name", name]
    tools.run(CONFIGS, *entity, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    limits = ["--max-messages", "2", "--timeout-ms", "30000"]
    consumer = f"{PACKAGE}.consumer.ConsoleShareConsumer"
    read = tools.run(consumer, "--topic", name, "--group", name, *limits)
    assert sorted(read.splitlines()) == ["a", "b"]
    assert name in tools.run(command, "--list").splitlines()
    assert name in tools.run(command, *reset)


def test_streams_groups_are_listed(tools: JavaTools) -> None:
    assert tools.run(f"{PACKAGE}.streams.StreamsGroupCommand", "--list").strip() == ""


def test_access_control_is_reported_as_disabled(tools: JavaTools) -> None:
    words = "SecurityDisabledException: No Authorizer is configured on the broker"
    assert words in tools.refused(f"{PACKAGE}.AclCommand", "--list")
    new = ["--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "t"]
    assert words in tools.refused(f"{PACKAGE}.AclCommand", *new)


def test_quotas_and_credentials_of_users_change(tools: JavaTools, name: str) -> None:
    user = ["--entity-type", "users", "--entity-name", name]
    tools.run(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=1000000")
    secret = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    tools.run(CONFIGS, *user, "--alter", "--add-config", secret)
    described = tools.run(CONFIGS, *user, "--describe")
    assert "producer_byte_rate=1000000" in described
    assert "SCRAM-SHA-256=iterations=4096" in described


def test_reassignments_are_listed(tools: JavaTools) -> None:
    assert tools.run(REASSIGN, "--list") == "No partition reassignments found.\n"


def plan(tmp_path: Path, topic: str, replica: int) -> list[str]:
    """A file for ReassignPartitionsCommand that gives a topic's first partition one replica."""
    partition = {"topic": topic, "partition": 0, "replicas": [replica]}
    path = tmp_path / f"to-{replica}.json"
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return ["--reassignment-json-file", str(path)]


def test_replicas_are_reassigned_to_their_current_broker(
    tools: JavaTools, name: str, tmp_path: Path
) -> None:
    fill(tools, name)
    stays = plan(tmp_path, name, 1)
    started = tools.run(REASSIGN, *stays, "--execute")
    assert started.endswith(f"Successfully started partition reassignment for {name}-0\n")
    verified = tools.run(REASSIGN, *stays, "--verify")
    assert f"Reassignment of partition {name}-0 is completed." in verified
    cancelled = tools.run(REASSIGN, *stays, "--cancel")
    assert "None of the specified partition reassignments are active." in cancelled


def test_replicas_are_not_assigned_to_a_missing_broker(
    tools: JavaTools, name: str, tmp_path: Path
) -> None:
    fill(tools, name)
    refused = tools.refused(REASSIGN, *plan(tmp_path, name, 7), "--execute")
    assert "Unknown broker id 7" in refused


def test_the_offsets_of_a_streams_application_are_reset(tools: JavaTools, name: str) -> None:
    fill(tools, name)
    options = ["--application-id", f"{name}-app", "--input-topics", name]
    output = tools.run(f"{PACKAGE}.StreamsResetter", *options)
    assert f"Topic: {name} Partition: 0 Offset: 0" in output
    assert tools.run(OFFSETS, "--topic", name) == f"{name}:0:2\n"


def test_subscriptions_to_client_metrics_change(tools: JavaTools, name: str) -> None:
    command = f"{PACKAGE}.ClientMetricsCommand"
    choice = ["--metrics", "org.apache.kafka.producer.", "--interval", "30000"]
    tools.run(command, "--alter", "--name", name, *choice)
    assert name in tools.run(command, "--list").splitlines()
    described = tools.run(command, "--describe", "--name", name)
    assert "interval.ms=30000" in described
    assert "metrics=org.apache.kafka.producer." in described
    tools.run(command, "--delete", "--name", name)
    assert name not in tools.run(command, "--list").splitlines()
