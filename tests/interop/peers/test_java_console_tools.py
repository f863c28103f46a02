"""Apache's console producer and consumer, and the formatters that read `__consumer_offsets`."""

import json
import re
from typing import Any

import pytest
from interop.peers.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, JavaTools

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def reader(*properties: str) -> list[str]:
    return [part for each in properties for part in ("--reader-property", each)]


def formatter(*properties: str) -> list[str]:
    return [part for each in properties for part in ("--formatter-property", each)]


def command(*properties: str) -> list[str]:
    return [part for each in properties for part in ("--command-property", each)]


def consume(tools: JavaTools, topic: str, count: int, *arguments: str) -> list[str]:
    """Exactly `count` messages; fewer within the time are a failure."""
    limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
    return tools.run(CONSOLE_CONSUMER, "--topic", topic, *limits, *arguments).splitlines()


def test_keys_headers_and_times_come_back(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    options = reader("parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NIL")
    lines = b"h1:v1,h2:v2\tk1:first\nh1:v3\tk2:NIL\n"
    tools.run(CONSOLE_PRODUCER, "--topic", name, *options, stdin=lines)

    shown = formatter(
        "print.timestamp=true",
        "print.key=true",
        "print.headers=true",
        "print.partition=true",
        "print.offset=true",
        "null.literal=NIL",
    )
    first, second = consume(tools, name, 2, "--from-beginning", *shown)
    place = r"CreateTime:\d{13}\tPartition:0\tOffset"
    assert re.fullmatch(rf"{place}:0\th1:v1,h2:v2\tk1\tfirst", first)
    assert re.fullmatch(rf"{place}:1\th1:v3\tk2\tNIL", second)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_and_read(tools: JavaTools, name: str, codec: str) -> None:
    values = [f"{codec} value {number} " + "x" * 200 for number in range(200)]
    lines = "".join(f"{value}\n" for value in values).encode()
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", name, "--compression-codec", codec, stdin=lines)
    assert consume(tools, name, len(values), "--from-beginning") == values


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_compresses_with_its_own_codec(tools: JavaTools, name: str, codec: str) -> None:
    setting = "uncompressed" if codec == "none" else codec
    values = [f"value {number}" for number in range(100)]
    lines = "".join(f"{value}\n" for value in values).encode()
    config = ["--config", f"compression.type={setting}"]
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1", *config)
    tools.run(CONSOLE_PRODUCER, "--topic", name, "--compression-codec", "gzip", stdin=lines)
    assert consume(tools, name, len(values), "--from-beginning") == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_works(tools: JavaTools, name: str, acks: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    options = command(f"acks={acks}", "enable.idempotence=false")
    tools.run(CONSOLE_PRODUCER, "--topic", name, *options, stdin=b"one\ntwo\n")
    assert consume(tools, name, 2, "--from-beginning") == ["one", "two"]


def test_a_named_topic_is_created_automatically(tools: JavaTools, name: str) -> None:
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"one\n")
    assert consume(tools, name, 1, "--from-beginning") == ["one"]
    assert "PartitionCount: 4" in tools.run(TOPICS, "--describe", "--topic", name)


def test_a_consumer_starts_at_an_offset_or_resumes_with_its_group(
    tools: JavaTools, name: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"a\nb\nc\nd\n")
    assert consume(tools, name, 2, "--partition", "0", "--offset", "2") == ["c", "d"]
    assert consume(tools, name, 2, "--partition", "0", "--offset", "earliest") == ["a", "b"]
    in_group = ["--group", name, "--from-beginning"]
    assert consume(tools, name, 3, *in_group) == ["a", "b", "c"]
    assert consume(tools, name, 1, *in_group) == ["d"]


def test_a_pattern_of_topics_is_consumed(tools: JavaTools, name: str) -> None:
    for suffix in ("one", "two"):
        topic = f"{name}-{suffix}"
        tools.run(TOPICS, "--create", "--topic", topic, "--partitions", "1")
        tools.run(CONSOLE_PRODUCER, "--topic", topic, stdin=f"{suffix}\n".encode())
    limits = ["--max-messages", "2", "--timeout-ms", "30000", "--from-beginning"]
    output = tools.run(CONSOLE_CONSUMER, "--include", f"{name}-.*", *limits)
    assert sorted(output.splitlines()) == ["one", "two"]


def test_committed_records_are_read_with_isolation(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"a\nb\n")
    isolated = ["--isolation-level", "read_committed", "--from-beginning"]
    assert consume(tools, name, 2, *isolated) == ["a", "b"]


def stored_in_groups(tools: JavaTools, kind: str, group: str) -> list[Any]:
    """A formatter's output for `__consumer_offsets`: the records of one group, in order."""
    options = ["--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "3000"]
    options += ["--formatter", f"org.apache.kafka.tools.consumer.{kind}MessageFormatter"]
    output = tools.run(CONSOLE_CONSUMER, *options, *command("enable.auto.commit=false"))
    decoder = json.JSONDecoder()
    records = []
    position = 0
    while position < len(output):
        record, position = decoder.raw_decode(output, position)
        if record["key"]["data"]["group"] == group:
            records.append(record)
    return records


def test_lag_monitors_read_the_offsets_of_a_group(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"a\nb\nc\n")
    consume(tools, name, 3, "--group", name, "--from-beginning")
    described = tools.run(TOPICS, "--describe", "--topic", name)
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id is not None

    (last,) = stored_in_groups(tools, "Offsets", name)[-1:]
    assert last["key"] == {"type": 1, "data": {"group": name, "topic": name, "partition": 0}}
    value = last["value"]["data"]
    assert last["value"]["version"] == 4
    assert re.fullmatch(r"\d{13}", str(value.pop("commitTimestamp")))
    assert value == {"offset": 3, "leaderEpoch": 0, "metadata": "", "topicId": topic_id[1]}


def test_a_groups_life_is_stored_as_apache_stores_it(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"a\n")
    consume(tools, name, 1, "--group", name, "--from-beginning")

    stored = stored_in_groups(tools, "GroupMetadata", name)
    assert {json.dumps(each["key"]) for each in stored} == {
        json.dumps({"type": 2, "data": {"group": name}})
    }
    assert {each["value"]["version"] for each in stored} == {3}
    *_, stable, empty = (each["value"]["data"] for each in stored)
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == (
        "consumer",
        1,
        "range",
    )
    (member,) = stable["members"]
    assert member["memberId"] == stable["leader"]
    assert member["memberId"].startswith("console-consumer-")
    assert member["clientId"] == "console-consumer"
    assert member["clientHost"] == "/127.0.0.1"
    assert (member["sessionTimeout"], member["rebalanceTimeout"]) == (45000, 300000)
    assert member["subscription"]
    assert member["assignment"]
    del empty["currentStateTimestamp"]
    assert empty == {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "members": [],
    }
