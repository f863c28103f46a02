"""Names chosen by others cannot take over a terminal, forge a line, or hide their content."""

import json
import logging
from collections.abc import Iterator

import pytest
from cli.escapes import EVIL, is_harmless
from cli.kafka_command import KafkaCommand, fresh

from moldau import Consumer
from moldau.cli.shared.escaping import json_text, printable
from moldau.cli.shared.logs import ReadableFormatter
from moldau.types import TopicPartition


@pytest.fixture(scope="module")
def group(kafka: KafkaCommand) -> Iterator[str]:
    """A group with a member and an offset."""
    topic = kafka.topic()
    kafka.fill(topic, ["a"])
    name = fresh("group") + EVIL
    settings = {"group.id": name, "client.id": f"client{EVIL}", "auto.offset.reset": "earliest"}
    with Consumer(kafka.address, config=settings) as consumer:
        consumer.subscribe(topic)
        while not consumer.poll(timeout=1):
            pass
        consumer.commit({TopicPartition(topic, 0): 1})
        yield name


@pytest.mark.parametrize(
    "command",
    [
        ("groups", "list"),
        ("groups", "list", "--quiet"),
        ("groups", "list", "--json"),
        ("groups", "describe", "GROUP"),
        ("groups", "describe", "GROUP", "--members"),
        ("groups", "describe", "GROUP", "--json"),
    ],
    ids=" ".join,
)
def test_names_are_escaped_where_they_are_shown(
    kafka: KafkaCommand, group: str, command: tuple[str, ...]
) -> None:
    arguments = [one.replace("GROUP", group) for one in command]
    status, printed = kafka.on_a_terminal(*arguments, TERM="dumb", COLUMNS="400")
    assert status == 0
    assert group.removesuffix(EVIL) in printed
    assert is_harmless(printed)


@pytest.mark.parametrize(
    "command",
    [
        ("groups", "delete", "NAME", "--yes"),
        ("groups", "describe", "NAME"),
        ("topics", "delete", "NAME", "--yes"),
        ("topics", "describe", "NAME"),
        ("topics", "create", "NAME"),
        ("transactions", "describe", "NAME"),
        ("configs", "describe", "topic", "NAME"),
        ("offsets", "NAME"),
        ("consume", "NAME"),
        ("topics", "describe", "--NAME"),
    ],
    ids=" ".join,
)
def test_names_are_escaped_in_complaints(kafka: KafkaCommand, command: tuple[str, ...]) -> None:
    ran = kafka.with_any_status(*(one.replace("NAME", f"name{EVIL}") for one in command))
    assert ran.status in {1, 2}
    assert "name" in ran.errors
    assert is_harmless(ran.errors)
    assert len(ran.errors.splitlines()) == 1


def test_names_in_confirmation_prompts_are_escaped(kafka: KafkaCommand) -> None:
    for noun in ("topics", "groups"):
        _, printed = kafka.on_a_terminal(noun, "delete", f"name{EVIL}", typed=b"n\n", TERM="dumb")
        assert "name\\x1b" in printed
        assert is_harmless(printed)


def test_names_are_not_escaped_in_a_pipe(kafka: KafkaCommand, group: str) -> None:
    assert group.partition("\n")[0] in kafka("groups", "list", "--quiet").lines
    assert group in [row["groupId"] for row in kafka.json("groups", "list")]


def test_names_are_escaped_in_the_log_of_a_node() -> None:
    """Exceptions keep their lines, and names in them add no lines."""
    told = (ValueError, ValueError(EVIL.replace("\n", " ")), None)
    record = logging.LogRecord("moldau.a", logging.INFO, "", 0, "group %s", (EVIL,), told)
    line, *trace = ReadableFormatter().format(record).split("\n")
    assert trace
    assert is_harmless("\n".join((line, *trace)))


def test_printable_text_is_not_changed() -> None:
    assert printable("Größe 大 \\ 🙂") == "Größe 大 \\ 🙂"
    assert printable("Größe\x1b[2J\n\u202e") == "Größe\\x1b[2J\\n\\u202e"
    assert printable("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


def test_json_escapes_all_unprintable_characters() -> None:
    document = {"a": "\x1b \x7f \x9b \u202e ä 🙂 \U000e0001", "b": [1, None]}
    for indent in (None, 2):
        text = json_text(document, indent=indent)
        assert json.loads(text) == document
        assert "ä 🙂" in text
        assert text.replace("\n", "").isprintable()
