"""`moldau groups`: lag, members, and every method to reset a group's offsets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.kafka_command import KafkaCommand, fresh
from support.waiting import wait_for

BASE_MS = 1_777_000_000_000


@contextmanager
def member(kafka: KafkaCommand, topic: str, group: str, *options: object) -> Iterator[None]:
    """A member that has joined; it is ended by its process id."""
    with kafka.start("consume", topic, "-g", group, "--follow", *options) as running:
        try:
            wait_for(lambda: kafka.has_member(group), f"a member of {group}")
            yield
        finally:
            running.kill()


@pytest.fixture
def behind(kafka: KafkaCommand) -> tuple[str, str]:
    """A topic with 10 and 5 records a second apart, and a group that has read 4 and 5."""
    topic, group = kafka.topic(2, "-c", "retention.ms=-1"), fresh("group")
    for partition, count in ((0, 10), (1, 5)):
        lines = [
            json.dumps({"value": f"{partition}/{n}", "timestamp": BASE_MS + 1000 * n})
            for n in range(count)
        ]
        kafka.fill(topic, lines, "--json", "--partition", partition)
    options = (
        "reset-offsets",
        group,
        "--topic",
        f"{topic}:0",
        "--to-offset",
        4,
        "--execute",
        "--yes",
    )
    kafka("groups", *options)
    kafka("groups", "reset-offsets", group, "-t", f"{topic}:1", "--to-latest", "--execute", "--yes")
    return topic, group


def test_the_type_of_a_group_has_one_spelling(kafka: KafkaCommand, behind: tuple[str, str]) -> None:
    _, group = behind
    (listed,) = [one for one in kafka.json("groups", "list") if one["groupId"] == group]
    (described,) = kafka.json("groups", "describe", group)
    assert listed["type"] == described["type"] == "Classic"
    assert group in kafka("groups", "list", "--type", "classic", "-q").lines
    assert group not in kafka("groups", "list", "--type", "consumer", "-q").lines
    assert group in kafka("groups", "list", "--type", "consumer,Classic", "-q").lines


def test_unknown_group_types_and_states_are_refused(kafka: KafkaCommand) -> None:
    for option, what in (("--type", "type"), ("--state", "state")):
        ran = kafka("groups", "list", option, "stable,foo" if what == "state" else "foo", status=2)
        assert f"unknown group {what} 'foo'; known are " in " ".join(ran.errors.split())
    assert kafka("groups", "list", "--state", "Preparing_Rebalance", "-q").output == ""


def committed(kafka: KafkaCommand, group: str) -> dict[int, int]:
    (found,) = kafka.json("groups", "describe", group)
    return {row["partition"]: row["committed"] for row in found["partitions"]}


def test_lag_is_counted_by_partition_and_in_all(
    kafka: KafkaCommand, behind: tuple[str, str]
) -> None:
    topic, group = behind
    (found,) = kafka.json("groups", "describe", group)
    assert (found["groupId"], found["state"], found["members"]) == (group, "Empty", [])
    assert found["totalLag"] == 6
    assert [
        (row["topic"], row["partition"], row["committed"], row["logEnd"], row["lag"])
        for row in found["partitions"]
    ] == [(topic, 0, 4, 10, 6), (topic, 1, 5, 5, 0)]
    lines = kafka("groups", "describe", group).lines
    assert lines[0].startswith(f"{group}: Empty, 0 members")
    assert lines[1].split()[:5] == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"]
    assert lines[2].split()[:5] == [topic, "0", "4", "10", "6"]
    assert lines[4] == "total lag: 6"


def test_members_are_shown_with_their_partitions(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(2), fresh("group")
    with member(kafka, topic, group):
        (found,) = kafka.json("groups", "describe", group)
        (only,) = found["members"]
        assert only["clientId"] == "moldau"
        assert [row["partition"] for row in only["assignment"]] == [0, 1]
        assert {row["memberId"] for row in found["partitions"]} == {only["memberId"]}
        lines = kafka("groups", "describe", group, "--members").lines
        assert f"{topic}:0,1" in lines[2]
        rows = kafka.json("groups", "list", "--state", "stable")
        assert group in [row["groupId"] for row in rows]
        assert group not in kafka("groups", "list", "-q", "--state", "empty,dead").lines


def test_an_active_group_is_left_alone(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    with member(kafka, topic, group):
        ran = kafka("groups", "reset-offsets", group, "-t", topic, "--to-earliest", status=1)
        assert ran.errors == (
            f"moldau: group '{group}' is Stable; its offsets can only be changed while it has "
            "no active members\n"
        )
        ran = kafka("groups", "delete", group, "--yes", status=1)
        assert ran.errors == (
            f"moldau groups delete: {group}: NON_EMPTY_GROUP: The group is not empty.\n"
        )
        rows = kafka.json("groups", "delete-offsets", group, "--yes", "-t", topic, status=1)
        assert [row["error"] for row in rows] == ["GROUP_SUBSCRIBED_TO_TOPIC"]


WAYS = [
    (("--to-earliest",), {0: 0, 1: 0}),
    (("--to-latest",), {0: 10, 1: 5}),
    (("--to-current",), {0: 4, 1: 5}),
    (("--to-offset", 3), {0: 3, 1: 3}),
    (("--to-offset", 7), {0: 7, 1: 5}),
    (("--shift-by", 2), {0: 6, 1: 5}),
    (("--shift-by", -3), {0: 1, 1: 2}),
    (("--shift-by", -100), {0: 0, 1: 0}),
    (("--to-datetime", "2026-04-24T03:06:43.000"), {0: 3, 1: 3}),
    (("--to-datetime", "2026-04-24T05:06:42.500+02:00"), {0: 3, 1: 3}),
    (("--to-datetime", "2026-04-24T03:06:47.000"), {0: 7, 1: 5}),
    (("--by-duration", "PT0S"), {0: 10, 1: 5}),
    (("--by-duration", "P36500D"), {0: 0, 1: 0}),
]


@pytest.mark.parametrize(("method", "expected"), WAYS, ids=str)
def test_every_way_is_shown_first_and_done_on_demand(
    kafka: KafkaCommand,
    behind: tuple[str, str],
    method: tuple[object, ...],
    expected: dict[int, int],
) -> None:
    _, group = behind
    options = ("groups", "reset-offsets", group, "--all-topics", *method)
    (plan,) = kafka.json(*options)
    assert {row["partition"]: row["newOffset"] for row in plan["partitions"]} == expected
    assert not plan["executed"]
    assert committed(kafka, group) == {0: 4, 1: 5}
    ran = kafka(*options, "--dry-run")
    assert ran.lines[0].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert "nothing was changed; use --execute to apply the plan" in ran.errors
    assert committed(kafka, group) == {0: 4, 1: 5}
    (plan,) = kafka.json(*options, "--execute", "--yes")
    assert plan["executed"]
    assert committed(kafka, group) == expected


def test_a_plan_is_exported_changed_and_imported(
    kafka: KafkaCommand, behind: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = behind
    saved = tmp_path / "saved.csv"
    options = ("groups", "reset-offsets", group)
    saved.write_text(kafka(*options, "--all-topics", "--to-current", "--export").output)
    assert saved.read_text() == f"{topic},0,4\n{topic},1,5\n"
    kafka(*options, "--all-topics", "--to-earliest", "--execute", "--yes")
    assert committed(kafka, group) == {0: 0, 1: 0}
    kafka(*options, "--from-file", saved, "--execute", "--yes")
    assert committed(kafka, group) == {0: 4, 1: 5}
    saved.write_text(f"{topic},0,99\n")
    ran = kafka(*options, "--from-file", saved, "--execute", "--yes")
    assert f"{topic}-0: offset 99 is not in the log; using its end, 10" in ran.errors
    assert committed(kafka, group) == {0: 10, 1: 5}
    saved.write_text("one,two\n")
    ran = kafka(*options, "--from-file", saved, status=1)
    assert ran.errors == "moldau: line 1 of the file is not topic,partition,offset: one,two\n"


def test_several_groups_are_saved_in_one_file(kafka: KafkaCommand, tmp_path: Path) -> None:
    topic, groups = kafka.topic(), sorted([fresh("group"), fresh("group")])
    kafka.fill(topic, ["1", "2", "3"])
    for offset, group in enumerate(groups, start=1):
        options = ("reset-offsets", group, "-t", topic, "--to-offset", offset, "--execute", "--yes")
        kafka("groups", *options)
    saved = tmp_path / "saved.csv"
    methods = ("groups", "reset-offsets", *groups)
    saved.write_text(kafka(*methods, "--all-topics", "--to-current", "--export").output)
    assert saved.read_text() == f"{groups[0]},{topic},0,1\n{groups[1]},{topic},0,2\n"
    kafka(*methods, "--all-topics", "--to-latest", "--execute", "--yes")
    kafka(*methods, "--from-file", saved, "--execute", "--yes")
    assert [committed(kafka, group) for group in groups] == [{0: 1}, {0: 2}]


def test_only_the_named_partitions_are_moved(kafka: KafkaCommand, behind: tuple[str, str]) -> None:
    topic, group = behind
    options = ("reset-offsets", group, "-t", f"{topic}:0", "--to-earliest", "--execute", "--yes")
    kafka("groups", *options)
    assert committed(kafka, group) == {0: 0, 1: 5}


def test_offsets_can_be_set_for_a_new_group(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    kafka.fill(topic, ["1", "2", "3"])
    kafka("groups", "reset-offsets", group, "-t", topic, "--to-offset", 2, "--execute", "--yes")
    assert kafka("consume", topic, "-g", group).lines == ["3"]


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        (("--to-earliest",), 2, "--topic or --all-topics"),
        (("-t", "TOPIC"), 2, "choose one of --to-earliest"),
        (("-t", "TOPIC", "--to-earliest", "--to-latest"), 2, "choose one of"),
        (("-t", "TOPIC", "--to-earliest", "--execute", "--dry-run"), 2, "exclude each other"),
        (("-t", "TOPIC", "--to-datetime", "noon"), 2, "is not a time"),
        (("-t", "TOPIC", "--by-duration", "long"), 2, "is not a duration"),
        (("-t", "TOPIC:x", "--to-earliest"), 2, "is not a list of numbers"),
        (("-t", "TOPIC:9", "--to-earliest"), 1, "has no partition 9"),
        (("-t", "TOPIC", "--shift-by", "1"), 1, "has no committed offset"),
        (("-t", "never-there-at-all", "--to-earliest"), 1, "does not exist"),
        (("--from-file", "/no/such"), 1, "No such file"),
    ],
)
def test_senseless_resets_are_an_error_of_one_line(
    kafka: KafkaCommand, options: tuple[str, ...], status: int, reason: str
) -> None:
    topic = kafka.topic()
    given = [option.replace("TOPIC", topic) for option in options]
    ran = kafka("groups", "reset-offsets", fresh("group"), *given, status=status)
    assert reason in ran.errors
    assert len(ran.errors.splitlines()) == 1


def test_groups_and_their_offsets_are_deleted(kafka: KafkaCommand, behind: tuple[str, str]) -> None:
    topic, group = behind
    rows: list[dict[str, Any]] = kafka.json(
        "groups", "delete-offsets", group, "--yes", "-t", f"{topic}:0"
    )
    assert rows == [{"topic": topic, "partition": 0, "error": None}]
    assert committed(kafka, group) == {1: 5}
    assert kafka.json("groups", "delete", group, "--yes") == [{"groupId": group, "deleted": True}]
    assert group not in kafka("groups", "list", "-q").lines
    ran = kafka("groups", "describe", group, status=1)
    assert ran.errors == f"moldau groups describe: group '{group}' does not exist\n"
    ran = kafka("groups", "delete", group, "--yes", status=1)
    assert ran.errors == (
        f"moldau groups delete: {group}: GROUP_ID_NOT_FOUND: The group id does not exist.\n"
    )


def test_all_groups_are_described_at_once(kafka: KafkaCommand, behind: tuple[str, str]) -> None:
    _, group = behind
    found = kafka.json("groups", "describe", "--all-groups")
    assert group in [one["groupId"] for one in found]
    kafka("groups", "describe", group, "--all-groups", status=2)
