"""Apache's tools for groups: listing, describing, resetting and deleting them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from interop.peers.java_tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    GROUPS,
    TOPICS,
    JavaTools,
    table,
)
from support.waiting import wait_for

pytestmark = pytest.mark.interop

NO_MEMBERS = "has no active members."


@pytest.fixture
def group(tools: JavaTools, name: str) -> str:
    """An empty group that has read three of four records of the topic with its name."""
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"a\nb\nc\nd\n")
    read = ["--topic", name, "--group", name, "--from-beginning", "--timeout-ms", "30000"]
    tools.run(CONSOLE_CONSUMER, *read, "--max-messages", "3")
    return name


@contextmanager
def members(tools: JavaTools, group: str, shares: list[int], **settings: str) -> Iterator[None]:
    """Consumers of another client library in the group, each with its share of the topic of its
    name.
    """
    options: dict[str, str | int] = {
        key.replace("_", "."): value for key, value in settings.items()
    }
    options |= {"bootstrap.servers": tools.server.address, "group.id": group, "log_level": 0}
    consumers = [Consumer(options) for _ in shares]

    def are_assigned() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return [len(consumer.assignment()) for consumer in consumers] == shares

    try:
        for consumer in consumers:
            consumer.subscribe([group])
        wait_for(are_assigned, f"shares {shares} of {group}")
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def offsets_of(tools: JavaTools, group: str) -> dict[str, str]:
    rows = table(tools.run(CONSUMER_GROUPS, "--describe", "--group", group))
    return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows}


def test_a_group_without_members_shows_its_lag(tools: JavaTools, group: str) -> None:
    run = tools.attempt(CONSUMER_GROUPS, "--describe", "--group", group)
    assert NO_MEMBERS in run.errors
    (row,) = table(run.output)
    assert row == {
        "GROUP": group,
        "TOPIC": group,
        "PARTITION": "0",
        "CURRENT-OFFSET": "3",
        "LOG-END-OFFSET": "4",
        "LAG": "1",
        "CONSUMER-ID": "-",
        "HOST": "-",
        "CLIENT-ID": "-",
    }
    verbose = tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets", "--verbose")
    (row,) = table(verbose)
    assert row["LEADER-EPOCH"] == "-"
    state = tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--state")
    assert state.split()[-4:] == ["(1)", "-", "Empty", "0"]
    assert tools.server.address in state


def test_groups_are_listed_with_state_and_type(tools: JavaTools, group: str) -> None:
    assert group in tools.run(CONSUMER_GROUPS, "--list").splitlines()
    states = table(tools.run(CONSUMER_GROUPS, "--list", "--state"))
    assert {"GROUP": group, "STATE": "Empty"} in states
    assert group not in tools.run(CONSUMER_GROUPS, "--list", "--state", "stable")
    types = table(tools.run(CONSUMER_GROUPS, "--list", "--type"))
    assert {"GROUP": group, "TYPE": "Classic"} in types
    row = {"GROUP": group, "TYPE": "Classic", "PROTOCOL": "consumer"}
    assert row in table(tools.run(GROUPS, "--list"))
    assert row in table(tools.run(GROUPS, "--list", "--group-type", "classic"))
    assert row in table(tools.run(GROUPS, "--list", "--consumer"))
    assert group not in tools.run(GROUPS, "--list", "--group-type", "share")


def test_an_active_group_shows_its_members_and_their_partitions(
    tools: JavaTools, group: str
) -> None:
    settings = {"client_id": "observer", "group_instance_id": "station-1"}
    with members(tools, group, [1], **settings):
        (row,) = table(tools.run(CONSUMER_GROUPS, "--describe", "--group", group))
        assert row["CONSUMER-ID"].startswith("station-1-")
        assert (row["HOST"], row["CLIENT-ID"]) == ("/127.0.0.1", "observer")

        describe = ["--describe", "--group", group, "--members"]
        (row,) = table(tools.run(CONSUMER_GROUPS, *describe))
        assert row["GROUP-INSTANCE-ID"] == "station-1"
        assert row["#PARTITIONS"] == "1"
        (row,) = table(tools.run(CONSUMER_GROUPS, *describe, "--verbose"))
        assert row["CURRENT-ASSIGNMENT"] == f"{group}:0"

        state = tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--state")
        assert state.split()[-4:] == ["(1)", "range", "Stable", "1"]
        assert group in tools.run(CONSUMER_GROUPS, "--list", "--state", "stable")

        refused = tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused
        topic = ["--group", group, "--topic", group]
        active = tools.attempt(CONSUMER_GROUPS, "--reset-offsets", *topic, "--to-earliest")
        assert "is inactive, but the current state is Stable" in active.output + active.errors
        subscribed = tools.run(CONSUMER_GROUPS, "--delete-offsets", *topic)
        assert "Error: Encountered some partition-level error" in subscribed


def test_an_unknown_group_is_reported_as_unknown(tools: JavaTools, name: str) -> None:
    said = tools.run(CONSUMER_GROUPS, "--describe", "--group", name)
    assert f"GroupIdNotFoundException: Group {name} " in said
    said = tools.run(CONSUMER_GROUPS, "--delete", "--group", name)
    assert "GroupIdNotFoundException: " in said


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        (["--to-earliest"], "0"),
        (["--to-latest"], "4"),
        (["--to-current"], "3"),
        (["--to-offset", "2"], "2"),
        (["--to-offset", "99"], "4"),
        (["--shift-by", "-2"], "1"),
        (["--shift-by", "-9"], "0"),
        (["--to-datetime", "2020-01-01T00:00:00.000"], "0"),
        (["--to-datetime", "2100-01-01T00:00:00.000"], "4"),
        (["--by-duration", "PT1H"], "0"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_offsets_are_reset_in_every_way(
    tools: JavaTools, group: str, arguments: list[str], offset: str
) -> None:
    topic = ["--reset-offsets", "--group", group, "--topic", group]

    def announced(*mode: str) -> dict[str, str]:
        output = tools.run(CONSUMER_GROUPS, *topic, *arguments, *mode)
        rows = output[output.index("GROUP ") :]
        return table(rows)[0]

    row = {"GROUP": group, "TOPIC": group, "PARTITION": "0", "NEW-OFFSET": offset}
    assert announced("--dry-run") == row
    assert offsets_of(tools, group) == {"0": "3"}
    assert announced("--execute") == row
    assert offsets_of(tools, group) == {"0": offset}


def test_offsets_are_exported_and_imported_from_a_file(
    tools: JavaTools, group: str, tmp_path: Path
) -> None:
    reset = ["--reset-offsets", "--group", group]
    everything = [*reset, "--all-topics", "--to-current", "--export", "--dry-run"]
    exported = tools.run(CONSUMER_GROUPS, *everything)
    assert exported.strip() == f'"{group}",0,3'
    file = tmp_path / "plan.csv"
    file.write_text(f"{group},0,1\n")
    tools.run(CONSUMER_GROUPS, *reset, "--from-file", str(file), "--execute")
    assert offsets_of(tools, group) == {"0": "1"}


def test_offsets_are_set_for_a_group_without_any_members(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    reset = ["--reset-offsets", "--group", f"new-{name}", "--topic", f"{name}:0,1"]
    tools.run(CONSUMER_GROUPS, *reset, "--to-latest", "--execute")
    assert offsets_of(tools, f"new-{name}") == {"0": "0", "1": "0"}
    # Offsets alone create a group without a protocol.
    assert f"new-{name}" in tools.run(CONSUMER_GROUPS, "--list").splitlines()


def test_offsets_and_groups_are_deleted(tools: JavaTools, group: str) -> None:
    topic = ["--delete-offsets", "--group", group, "--topic", group]
    said = tools.run(CONSUMER_GROUPS, *topic)
    assert f"Request succeeded for deleting offsets from group {group}." in said
    assert said.split()[-3:] == [group, "0", "Successful"]
    done = f"Deletion of requested consumer groups ('{group}') was successful."
    gone = tools.run(CONSUMER_GROUPS, "--list").splitlines()
    if group in gone:
        assert done in tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
    assert group not in tools.run(CONSUMER_GROUPS, "--list").splitlines()


def test_all_groups_are_described_at_once(tools: JavaTools, group: str) -> None:
    output = tools.run(CONSUMER_GROUPS, "--describe", "--all-groups", "--state")
    rows = [line.split() for line in output.splitlines() if line.strip()]
    assert [row for row in rows if row[0] == group and row[-2:] == ["Empty", "0"]]


def test_the_members_of_a_rebalanced_group_share_its_partitions(
    tools: JavaTools, name: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "4")
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    with members(tools, name, [2, 2], **strategy):
        rows = table(tools.run(CONSUMER_GROUPS, "--describe", "--group", name, "--members"))
        assert [row["#PARTITIONS"] for row in rows] == ["2", "2"]
        state = tools.run(CONSUMER_GROUPS, "--describe", "--group", name, "--state")
        assert state.split()[-3:] == ["cooperative-sticky", "Stable", "2"]
