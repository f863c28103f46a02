"""`moldau topics` on a running broker."""

import pytest
from cli.kafka_command import KafkaCommand, fresh
from support.waiting import wait_for


def test_a_topic_is_created_listed_described_and_deleted(kafka: KafkaCommand) -> None:
    name = fresh("orders")
    (made,) = kafka.json("topics", "create", name, "-p", 3, "-c", "retention.ms=60000")
    assert (made["name"], made["created"], made["error"]) == (name, True, None)
    assert (made["partitions"], made["replicationFactor"]) == (3, 1)

    listed = {row["name"]: row for row in kafka.json("topics", "list")}
    assert listed[name]["topicId"] == made["topicId"]
    assert listed[name]["partitions"] == 3
    assert not listed[name]["internal"]

    (described,) = kafka.json("topics", "describe", name)
    assert described["configs"] == {"retention.ms": "60000"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    for row in described["partitions"]:
        assert row["replicas"] == row["isr"] == [row["leader"]]
        assert (row["earliest"], row["latest"], row["sizeBytes"]) == (0, 0, 0)

    assert kafka.json("topics", "delete", name, "--yes") == [{"name": name, "deleted": True}]
    assert name not in kafka("topics", "list", "-q").lines


def test_the_default_output_is_readable_text(kafka: KafkaCommand) -> None:
    name = fresh("words")
    assert kafka("topics", "create", name, "-p", 2).output == (
        f"created {name}: 2 partitions, replication 1\n"
    )
    kafka.fill(name, ["a", "b"], "--partition", 1)
    lines = kafka("topics", "describe", name).lines
    assert lines[0] == f"{name}: 2 partitions, replication 1"
    assert lines[1].split() == [
        "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "EARLIEST", "LATEST", "RECORDS", "SIZE",
    ]  # fmt: skip
    assert lines[3].split()[4:7] == ["0", "2", "2"]
    assert lines[3].split()[-1] == "B"
    assert kafka("topics", "delete", name, "--yes").output == f"deleted {name}\n"


def test_a_list_can_be_narrowed(kafka: KafkaCommand) -> None:
    first, second = fresh("narrow"), fresh("narrow")
    kafka("topics", "create", first, second)
    assert kafka("topics", "list", "-q", f"{first}|{second}").lines == sorted([first, second])
    assert kafka("topics", "list", "-q", "nothing-like-this").lines == []
    assert kafka("topics", "list", "(", status=2).errors.count("\n") == 1


def test_internal_topics_are_shown_on_demand(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    kafka("consume", topic, "--group", fresh("group"))
    assert "__consumer_offsets" not in kafka("topics", "list", "-q").lines
    assert "__consumer_offsets" in kafka("topics", "list", "-q", "--internal").lines


def test_creating_twice_is_an_error_unless_allowed(kafka: KafkaCommand) -> None:
    name = kafka.topic()
    ran = kafka("topics", "create", name, status=1)
    assert ran.errors.startswith(f"moldau topics create: {name}: TOPIC_ALREADY_EXISTS")
    assert len(ran.errors.splitlines()) == 1
    assert kafka("topics", "create", name, "--if-not-exists").lines == [f"{name} already exists"]


def test_one_bad_topic_does_not_stop_the_others(kafka: KafkaCommand) -> None:
    good, there = fresh("good"), kafka.topic()
    rows = kafka.json("topics", "create", good, there, "bad name", status=1)
    assert {row["name"]: row["error"] for row in rows} == {
        good: None,
        there: "TOPIC_ALREADY_EXISTS",
        "bad name": "INVALID_TOPIC_EXCEPTION",
    }
    assert good in kafka("topics", "list", "-q").lines


def test_a_dry_run_creates_nothing(kafka: KafkaCommand) -> None:
    name = fresh("dry")
    assert "would create" in kafka("topics", "create", name, "-p", 2, "--dry-run").output
    assert name not in kafka("topics", "list", "-q").lines


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("-c", "retention.ms=soon"), "INVALID_CONFIG"),
        (("-c", "no.such.setting=1"), "INVALID_CONFIG"),
        (("-r", "5"), "INVALID_REPLICATION_FACTOR"),
        (("--replica-assignment", "77"), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_refusals_of_the_broker_are_an_error_of_one_line(
    kafka: KafkaCommand, options: tuple[str, ...], code: str
) -> None:
    ran = kafka("topics", "create", fresh("refused"), *options, status=1)
    assert code in ran.errors
    assert len(ran.errors.splitlines()) == 1


def test_replicas_can_be_placed_by_hand(kafka: KafkaCommand) -> None:
    (broker,) = kafka.json("cluster", "describe")["brokers"]
    name, node_id = fresh("placed"), broker["brokerId"]
    kafka("topics", "create", name, "--replica-assignment", f"{node_id},{node_id}")
    (described,) = kafka.json("topics", "describe", name)
    assert [row["replicas"] for row in described["partitions"]] == [[node_id], [node_id]]
    kafka("topics", "create", name, "--replica-assignment", "1", "-p", 1, status=2)


def test_partitions_are_added_and_settings_changed(kafka: KafkaCommand) -> None:
    name = kafka.topic(1, "-c", "retention.ms=1000")
    kafka("topics", "alter", name, "--partitions", 3, "-c", "cleanup.policy=compact")
    kafka("topics", "alter", name, "--delete-config", "retention.ms")

    def has_changed() -> bool:
        (described,) = kafka.json("topics", "describe", name)
        assert len(described["partitions"]) == 3
        return bool(described["configs"] == {"cleanup.policy": "compact"})

    wait_for(has_changed, "the brokers to hear of it")
    ran = kafka("topics", "alter", name, "-p", 2, status=1)
    assert "INVALID_PARTITIONS" in ran.errors
    kafka("topics", "alter", name, status=2)


def test_a_dry_run_of_a_change_changes_nothing(kafka: KafkaCommand) -> None:
    name = kafka.topic()
    kafka("topics", "alter", name, "-p", 3, "-c", "retention.ms=1000", "--dry-run")
    (described,) = kafka.json("topics", "describe", name)
    assert (len(described["partitions"]), described["configs"]) == (1, {})


def test_a_mistyped_topic_gets_a_suggestion(kafka: KafkaCommand) -> None:
    name = kafka.topic()
    for command in ("describe", "alter"):
        ran = kafka("topics", command, name + "x", *(["-p", 2] * (command == "alter")), status=1)
        assert ran.errors == (f"moldau: topic '{name}x' does not exist; did you mean '{name}'?\n")


def test_deleting_a_missing_topic_is_an_error(kafka: KafkaCommand) -> None:
    ran = kafka("topics", "delete", "never-there", "--yes", status=1)
    assert ran.errors == "moldau topics delete: never-there: topic does not exist\n"
    kafka("topics", "delete", "never-there", "--yes", "--if-exists")


def test_healthy_topics_are_left_out_on_demand(kafka: KafkaCommand) -> None:
    name = kafka.topic()
    for option in ("--under-replicated", "--unavailable"):
        assert kafka.json("topics", "describe", name, option) == []
