"""`moldau produce` and `moldau consume`: records make a round trip in every format."""

import json
from pathlib import Path

import pytest
from cli.kafka_command import KafkaCommand, fresh
from support.waiting import wait_for


def test_lines_go_in_and_come_out(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    ran = kafka.alone("produce", topic, stdin="one\ntwo\r\nthree ünï\n\nlast".encode())
    assert ran.output == ""
    assert ran.errors.startswith(f"5 records written to {topic} in ")
    assert kafka.alone("consume", topic).output == "one\ntwo\nthree ünï\n\nlast\n"


def test_without_input_no_records_are_written(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    assert kafka("produce", topic).errors.startswith("0 records written")
    assert kafka("consume", topic).output == ""


def test_keys_and_nulls(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    lines = b"k1:v1\nk2:a:b\nk3:NULL\n:empty key\n"
    kafka("produce", topic, "-k", ":", "--null", "NULL", "-q", stdin=lines)
    assert kafka("consume", topic, "--keys", "--separator", "=").lines == [
        "k1=v1",
        "k2=a:b",
        "k3=null",
        "=empty key",
    ]
    rows = kafka.json_lines("consume", topic)
    assert [(row["key"], row["value"]) for row in rows[2:]] == [("k3", None), ("", "empty key")]


def test_a_line_without_its_key_stops_the_rest(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    ran = kafka("produce", topic, "-k", ":", stdin=b"a:1\nno key\nb:2\n", status=1)
    written, why = ran.errors.splitlines()
    assert written.startswith(f"1 record written to {topic}")
    assert written.endswith(", 1 failed; stopped, the rest was not sent")
    assert why == "moldau produce: 1 record failed: line 2: no ':' in the line"
    assert kafka("consume", topic).lines == ["1"]
    ran = kafka("produce", topic, "-k", ":", "--keep-going", stdin=b"c:3\nbad\nd:4\n", status=1)
    assert "2 records written" in ran.errors
    assert "1 record failed: line 2: no ':' in the line" in ran.errors
    assert kafka("consume", topic).lines == ["1", "3", "4"]


def test_json_makes_a_round_trip_with_all_parts_of_a_record(kafka: KafkaCommand) -> None:
    source, copy = kafka.topic(3), kafka.topic(3)
    records = [
        {"key": "k", "value": "text", "headers": [["h", "1"], ["h", "2"], ["none", None]]},
        {"keyBase64": "/wA=", "valueBase64": "gIE=", "headers": [["b", {"base64": "/w=="}]]},
        {"key": None, "value": None, "partition": 2, "timestamp": 1_700_000_000_123},
        {"value": {"nested": [1, 2]}, "timestamp": "2026-05-01T12:00:00Z", "headers": {"a": "b"}},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    summary = json.loads(kafka("produce", source, "--json", stdin=lines).output)
    assert (summary["records"], summary["failed"], summary["complete"]) == (4, 0, True)
    assert sum(row["records"] for row in summary["partitions"]) == 4

    printed = kafka("consume", source, "--json").output
    kafka("produce", copy, "--json", stdin=printed.encode())

    def contents(topic: str) -> list[str]:
        rows = kafka.json_lines("consume", topic)
        return sorted(json.dumps({**row, "topic": "", "offset": 0}) for row in rows)

    assert contents(copy) == contents(source)
    by_time = {row["timestamp"]: row for row in kafka.json_lines("consume", source)}
    assert by_time[1_700_000_000_123]["partition"] == 2
    assert by_time[1_777_636_800_000]["value"] == '{"nested":[1,2]}'
    assert by_time[1_777_636_800_000]["headers"] == [["a", "b"]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"val": 1}', "unknown field 'val'"),
        ('{"valueBase64": "?"}', "'?' is not base64"),
        ('{"headers": [["a"]]}', '["a"] is not a header'),
        ('{"headers": 7}', "neither an object nor a list"),
        ('{"partition": -1}', "'-1' is not a partition"),
        ('{"timestamp": "noon"}', "'noon' is not a time"),
        ('{"timestamp": [1]}', "is not a time"),
    ],
)
def test_a_line_that_is_not_a_record_is_named(kafka: KafkaCommand, line: str, reason: str) -> None:
    topic = kafka.topic()
    given = f'{{"value": "fine"}}\n{line}\n'.encode()
    ran = kafka("produce", topic, "--json", stdin=given, status=1)
    assert ran.errors.startswith("moldau produce: 1 record failed: line 2: ")
    assert reason in ran.errors
    assert json.loads(ran.output)["records"] == 1
    assert len(ran.errors.splitlines()) == 1
    assert kafka("consume", topic).lines == ["fine"]


def test_files_of_lines_and_whole_files(kafka: KafkaCommand, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("1\n2")
    second.write_bytes(b"3\n\x00\xff")
    lines, whole = kafka.topic(), kafka.topic()
    kafka("produce", lines, "-f", first, "-f", second, "-q")
    assert [row.get("value") for row in kafka.json_lines("consume", lines)] == ["1", "2", "3", None]
    kafka("produce", whole, "--whole", "-f", first, "-f", second, "-H", "a=b", "--key", "name")
    rows = kafka.json_lines("consume", whole)
    assert [(row["key"], row["headers"]) for row in rows] == [("name", [["a", "b"]])] * 2
    assert rows[0]["value"] == "1\n2"
    assert rows[1]["valueBase64"] == "MwoA/w=="
    kafka("produce", whole, "--whole", status=2)


def test_an_unreadable_file_is_reported_before_a_topic_is_created(
    kafka: KafkaCommand, tmp_path: Path
) -> None:
    topic = fresh("topic")
    ran = kafka("produce", topic, "--create", "-f", "/no/such", status=1)
    assert ran.errors == "moldau: cannot read /no/such: No such file or directory\n"
    ran = kafka("produce", topic, "--create", "--whole", "-f", tmp_path, status=1)
    assert ran.errors == f"moldau: cannot read {tmp_path}: is a directory\n"
    assert topic not in kafka("topics", "list", "-q").lines


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_kind_of_acknowledgement(
    kafka: KafkaCommand, acks: str, codec: str
) -> None:
    topic = kafka.topic()
    values = [f"{codec} {number}" for number in range(50)]
    kafka.fill(topic, values, "--acks", acks, "-z", codec, "--batch-size", "500")
    assert kafka("consume", topic, "--timeout", 5, "--max", 50).lines == values


def test_a_rate_and_a_long_input_lose_nothing(kafka: KafkaCommand) -> None:
    topic = kafka.topic(3)
    kafka.fill(topic, map(str, range(50)), "--rate", 1000)
    kafka.fill(topic, map(str, range(50, 20_000)))
    assert sorted(map(int, kafka("consume", topic).lines)) == list(range(20_000))


def test_a_partition_can_be_chosen(kafka: KafkaCommand) -> None:
    topic = kafka.topic(3)
    kafka.fill(topic, ["x"], "--partition", 2, "--key", "anything")
    assert [row["partition"] for row in kafka.json_lines("consume", topic)] == [2]
    ran = kafka("produce", topic, "-p", 3, stdin=b"y\n", status=1)
    assert (
        ran.errors == f"moldau: topic '{topic}' has no partition 3; it has 3 partitions (0 to 2)\n"
    )


def test_refused_records_are_counted_and_end_the_command(kafka: KafkaCommand) -> None:
    topic = kafka.topic(1, "-c", "cleanup.policy=compact")
    ran = kafka("produce", topic, stdin=b"no key\n", status=1)
    assert "0 records written" in ran.errors
    assert "1 record failed: INVALID_RECORD" in ran.errors
    assert "cannot accept message without key" in ran.errors
    summary = kafka.json("produce", topic, stdin=b'{"value":"no key"}\n', status=1)
    assert (summary["records"], summary["failed"], summary["complete"]) == (0, 1, False)


def test_a_missing_topic_is_created_only_on_request(kafka: KafkaCommand) -> None:
    name = fresh("madeondemand")
    ran = kafka("produce", name, stdin=b"x\n", status=1)
    assert ran.errors == f"moldau: topic '{name}' does not exist; use --create to create it\n"
    kafka("produce", name, "--create", stdin=b"x\n")
    assert kafka("consume", name).lines == ["x"]


@pytest.fixture(scope="module")
def ten(kafka: KafkaCommand) -> str:
    """Ten records, a second apart."""
    topic = kafka.topic(1, "-c", "retention.ms=-1")
    lines = [
        json.dumps({"key": f"k{n}", "value": f"v{n}", "timestamp": 1_777_000_000_000 + 1000 * n})
        for n in range(10)
    ]
    kafka.fill(topic, lines, "--json")
    return topic


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ((), range(10)),
        (("--from", "beginning"), range(10)),
        (("--from", "end"), []),
        (("--from", "7"), [7, 8, 9]),
        (("--from", "offset:8"), [8, 9]),
        (("--from", "-2"), [8, 9]),
        (("--from", "tail:3"), [7, 8, 9]),
        (("--from", "2026-04-24T03:06:45"), range(5, 10)),
        (("--from", "time:2026-04-24T05:06:45+02:00"), range(5, 10)),
        (("--from", "1777000006500"), []),
        (("--from", "time:1777000006500"), [7, 8, 9]),
        (("--from", "1h"), []),
        (("--max", "3"), [0, 1, 2]),
        (("--from", "4", "--max", "1"), [4]),
        (("--timeout", "0.2", "--from", "8"), [8, 9]),
        (("--committed",), range(10)),
    ],
)
def test_where_reading_begins_and_ends(
    kafka: KafkaCommand, ten: str, options: tuple[str, ...], numbers: list[int]
) -> None:
    assert kafka("consume", ten, *options).lines == [f"v{n}" for n in numbers]


def test_every_format(kafka: KafkaCommand, ten: str) -> None:
    def one(*options: str) -> str:
        return kafka("consume", f"{ten}:0", "--from", "3", "--max", "1", *options).output

    assert one() == "v3\n"
    assert one("-k") == "k3\tv3\n"
    assert one("-kTPOH") == f"2026-04-24T03:06:43.000Z\t{ten}-0\t3\t-\tk3\tv3\n"
    assert one("-k", "--separator", " | ", "--end", "\\0") == "k3 | v3\0"
    assert one("--hex", "-k") == "6b33\t7633\n"
    assert one("--format", "%t/%p/%o %k=%s (%K,%S) %T %D %h%%\\x21\\n") == (
        f"{ten}/0/3 k3=v3 (2,2) 1777000003000 2026-04-24T03:06:43.000Z %!\n"
    )
    assert json.loads(one("--json")) == {
        "topic": ten,
        "partition": 0,
        "offset": 3,
        "timestamp": 1_777_000_003_000,
        "key": "k3",
        "value": "v3",
        "headers": [],
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "%q"),
        ("--json", "--hex"),
        ("--from", "yesterday"),
        ("--from", "5x"),
        ("--max", "0"),
        ("--instance-id", "i"),
        ("--no-commit",),
    ],
)
def test_wrong_options_are_one_line(
    kafka: KafkaCommand, ten: str, options: tuple[str, ...]
) -> None:
    ran = kafka("consume", ten, *options, status=2)
    assert len(ran.errors.splitlines()) == 1
    assert "--help" in ran.errors


def test_several_topics_and_single_partitions(kafka: KafkaCommand) -> None:
    first, second = kafka.topic(2), kafka.topic(2)
    for topic in (first, second):
        for partition in (0, 1):
            kafka.fill(topic, [f"{topic}/{partition}"], "-p", partition)
    assert sorted(kafka("consume", first, f"{second}:1").lines) == sorted(
        [f"{first}/0", f"{first}/1", f"{second}/1"]
    )
    assert "has no partition 5" in kafka("consume", f"{first}:5", status=1).errors
    assert "does not exist" in kafka("consume", fresh("no"), status=1).errors
    kafka("consume", f"{first}:1", "--group", "g", status=2)


def test_a_group_resumes_where_it_stopped(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    kafka.fill(topic, ["1", "2", "3"])
    assert kafka("consume", topic, "-g", group, "--max", 2).lines == ["1", "2"]
    assert kafka("consume", topic, "-g", group, "--no-commit").lines == ["3"]
    assert kafka("consume", topic, "-g", group).lines == ["3"]
    assert kafka("consume", topic, "-g", group).lines == []
    kafka.fill(topic, ["4"])
    assert kafka("consume", topic, "-g", group, "--timeout", 5, "--max", 1).lines == ["4"]
    (row,) = kafka.json("groups", "describe", group)[0]["partitions"]
    assert (row["committed"], row["lag"]) == (4, 0)


def test_a_new_group_starts_at_the_requested_position(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    kafka.fill(topic, ["1", "2", "3"])
    assert kafka("consume", topic, "-g", fresh("group"), "--from", "-1").lines == ["3"]
    assert kafka("consume", topic, "-g", fresh("group"), "--from", "end").lines == []


@pytest.fixture
def matching(kafka: KafkaCommand) -> tuple[str, list[str]]:
    """The common prefix of two topics' names, and their records; a third has a similar name."""
    stem = kafka.topic()
    for name in ("a", "b", "a-not"):
        kafka("topics", "create", f"{stem}-{name}")
        kafka.fill(f"{stem}-{name}", [f"of {name}"])
    return stem, ["of a", "of b"]


@pytest.mark.parametrize("as_member", [False, True], ids=["alone", "in a group"])
def test_topics_are_read_by_a_pattern(
    kafka: KafkaCommand, matching: tuple[str, list[str]], as_member: bool
) -> None:
    stem, records = matching
    group = ("--group", fresh("group")) if as_member else ()
    ran = kafka("consume", "--pattern", f"{stem}-[ab]", *group)
    assert sorted(ran.lines) == records


def test_topics_that_are_created_later_are_read(kafka: KafkaCommand) -> None:
    stem, group = kafka.topic(), fresh("group")
    # A topic that exists when the command starts is read from its end.
    kafka.fill(stem, ["before the start"])
    pattern = ("--pattern", f"{stem}.*")
    with kafka.start("consume", *pattern, "-g", group, "--follow", "--max", 2) as running:
        try:
            wait_for(lambda: kafka.has_member(group), f"a member of {group}")
            for name in ("first", "second"):
                kafka("topics", "create", f"{stem}-{name}")
                kafka.fill(f"{stem}-{name}", [f"of {name}"])
            output, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0
    assert sorted(output.splitlines()) == [b"of first", b"of second"]


def test_an_invalid_pattern_is_an_error_of_one_line(kafka: KafkaCommand) -> None:
    wrong: list[tuple[tuple[str, ...], int, str]] = [
        (("--pattern", "no-such-.*"), 1, "no topic matches 'no-such-.*'"),
        (("--pattern", "__consumer_.*"), 1, "no topic matches"),
        (("--pattern", "("), 2, "'(' is not a regular expression"),
        (("orders", "--include", "o.*"), 2, "name topics, or give a --pattern"),
        (("--json",), 2, "name topics, or give a --pattern"),
        (("t.*",), 2, "'t.*' is not a topic name; give it as --pattern"),
        (("orders", "^o", "--group", "g"), 2, "'^o' is not a topic name; give it as --pattern"),
    ]
    for arguments, status, text in wrong:
        assert text in kafka("consume", *arguments, status=status).errors
