"""`moldau configs`: settings of topics, brokers and groups, with where they come from."""

import pytest
from cli.kafka_command import KafkaCommand, fresh
from support.waiting import wait_for


def wait_for_value(kafka: KafkaCommand, *where: object, value: str, source: str) -> None:
    """The controller responds before the brokers know about the change."""

    def is_there() -> bool:
        (entry,) = kafka.json("configs", "describe", *where)
        return (entry["value"], entry["source"]) == (value, source)

    wait_for(is_there, f"{where} = {value}")


def values(kafka: KafkaCommand, *arguments: object) -> dict[str, str | None]:
    return {row["name"]: row["value"] for row in kafka.json("configs", "describe", *arguments)}


def test_a_topics_settings_are_changed_and_restored(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    ran = kafka("configs", "set", "topic", topic, "retention.ms=60000", "segment.ms=70000")
    assert ran.output == f"changed 2 settings of topic {topic}\n"
    where = ("topic", topic, "retention.ms")
    wait_for_value(kafka, *where, value="60000", source="DYNAMIC_TOPIC_CONFIG")
    (entry,) = kafka.json("configs", "describe", *where)
    assert (entry["type"], entry["readOnly"], entry["sensitive"]) == ("LONG", False, False)
    kafka("configs", "delete", "topic", topic, "retention.ms")
    wait_for_value(kafka, *where, value="604800000", source="DEFAULT_CONFIG")
    assert values(kafka, "topic", topic)["segment.ms"] == "70000"


def test_lists_grow_and_shrink(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    kafka("configs", "append", "topic", topic, "cleanup.policy=compact")
    where = ("topic", topic, "cleanup.policy")
    wait_for_value(kafka, *where, value="delete,compact", source="DYNAMIC_TOPIC_CONFIG")
    kafka("configs", "subtract", "topic", topic, "cleanup.policy=delete")
    wait_for_value(kafka, *where, value="compact", source="DYNAMIC_TOPIC_CONFIG")


def test_all_settings_have_a_type_and_a_source(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    entries = kafka.json("configs", "describe", "topic", topic, "--all", "--docs")
    assert len(entries) > 20
    assert "UNKNOWN" not in {entry["type"] for entry in entries}
    assert "UNKNOWN" not in {entry["source"] for entry in entries}
    assert all(entry["documentation"] for entry in entries)
    assert len(kafka.json("configs", "describe", "topic", topic)) < 5


def test_synonyms_show_the_other_sources_of_a_value(kafka: KafkaCommand) -> None:
    topic = kafka.topic(1, "-c", "segment.bytes=2000000")
    (entry,) = kafka.json("configs", "describe", "topic", topic, "segment.bytes")
    assert entry["synonyms"][0] == {
        "name": "segment.bytes",
        "value": "2000000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }
    assert entry["synonyms"][-1]["name"] == "log.segment.bytes"
    shown = kafka("configs", "describe", "topic", topic, "segment.bytes", "--synonyms")
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in shown.output
    plain = kafka("configs", "describe", "topic", topic, "segment.bytes")
    assert "SYNONYMS" not in plain.output


def test_brokers_have_their_own_settings_and_common_ones(kafka: KafkaCommand) -> None:
    (broker,) = kafka.json("cluster", "describe")["brokers"]
    node_id = broker["brokerId"]
    own = kafka.json("configs", "describe", "broker", node_id, "--all")
    assert {entry["name"]: entry["value"] for entry in own}["node.id"] == str(node_id)
    assert {entry["name"]: entry["readOnly"] for entry in own}["node.id"]
    where = ("broker", node_id, "log.cleaner.backoff.ms")
    try:
        kafka("configs", "set", "broker", "default", "log.cleaner.backoff.ms=16000")
        wait_for_value(kafka, *where, value="16000", source="DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert values(kafka, "broker", "default")["log.cleaner.backoff.ms"] == "16000"
        kafka("configs", "set", "broker", node_id, "log.cleaner.backoff.ms=17000")
        wait_for_value(kafka, *where, value="17000", source="DYNAMIC_BROKER_CONFIG")
    finally:
        kafka("configs", "delete", "broker", node_id, "log.cleaner.backoff.ms")
        kafka("configs", "delete", "broker", "default", "log.cleaner.backoff.ms")


def test_groups_have_settings(kafka: KafkaCommand) -> None:
    group = fresh("group")
    kafka("configs", "set", "group", group, "consumer.session.timeout.ms=50000")
    where = ("group", group, "consumer.session.timeout.ms")
    wait_for_value(kafka, *where, value="50000", source="DYNAMIC_GROUP_CONFIG")
    assert {"kind": "group", "name": group} in kafka.json("configs", "list", "group")
    kafka("configs", "delete", "group", group, "consumer.session.timeout.ms")


def test_a_dry_run_changes_nothing(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    ran = kafka("configs", "set", "topic", topic, "retention.ms=1000", "--dry-run")
    assert ran.output == f"would change 1 setting of topic {topic}\n"
    assert "retention.ms" not in values(kafka, "topic", topic)


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("set", "topic", "TOPIC", "retention.ms=soon"), 1, "INVALID_CONFIG"),
        (("set", "topic", "TOPIC", "no.such=1"), 1, "INVALID_CONFIG"),
        (("set", "topic", "TOPIC", "retention.ms"), 2, "write name=value"),
        (("append", "topic", "TOPIC", "retention.ms=1"), 1, "INVALID_CONFIG"),
        (("set", "topic", "never-there-at-all", "retention.ms=1"), 1, "does not exist"),
        (("describe", "topic", "never-there-at-all"), 1, "does not exist"),
        (("describe", "broker", "one"), 2, "is not a broker id"),
        (("describe", "broker", "77"), 1, "broker 77 is not in the cluster"),
        (("describe", "planet", "earth"), 2, "planet"),
    ],
)
def test_what_cannot_be_is_one_line(
    kafka: KafkaCommand, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    topic = kafka.topic()
    given = [argument.replace("TOPIC", topic) for argument in arguments]
    ran = kafka("configs", *given, status=status)
    assert reason in ran.errors
    assert len(ran.errors.splitlines()) == 1
