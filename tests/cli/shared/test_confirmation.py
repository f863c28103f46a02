"""Changes that cannot be undone need a confirmation on a terminal, and --yes elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from cli.kafka_command import KafkaCommand

from moldau.cli.app import app

DESTRUCTIVE = {
    "groups delete": ("GROUP",),
    "groups delete-offsets": ("GROUP", "--topic", "TOPIC"),
    "groups reset-offsets": ("GROUP", "--topic", "TOPIC", "--to-earliest", "--execute"),
    "records delete": ("TOPIC", "--all"),
    "topics delete": ("TOPIC",),
    "transactions abort": ("TOPIC:0", "--start-offset", "0"),
    "transactions force-terminate": ("GROUP",),
}
# These need a confirmation, too; their own tests show it.
OTHERS = {"pipeline reset"}
# Their changes can be reverted.
HARMLESS = {"configs delete"}
TELLING_WORDS = ("abort", "delete", "remove", "reset", "terminate")


@pytest.fixture
def written(kafka: KafkaCommand) -> tuple[str, str]:
    """A topic with records, and a group that has read them."""
    topic = kafka.topic()
    group = f"group-of-{topic}"
    kafka.fill(topic, ["a", "b"])
    kafka("consume", topic, "--group", group)
    return topic, group


def state(kafka: KafkaCommand, topic: str, group: str) -> Any:
    committed = kafka.json("groups", "describe", group)[0]["partitions"]
    return kafka.json("offsets", topic), [(row["topic"], row["committed"]) for row in committed]


@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_without_a_terminal_nothing_is_destroyed(
    kafka: KafkaCommand, written: tuple[str, str], command: str
) -> None:
    topic, group = written
    before = state(kafka, topic, group)
    arguments = [
        one.replace("TOPIC", topic).replace("GROUP", group) for one in DESTRUCTIVE[command]
    ]
    ran = kafka(*command.split(), *arguments, status=2)
    assert ran.output == ""
    assert ran.errors == (
        f"moldau {command}: this cannot be undone; without a terminal, confirm with --yes. "
        f"Try 'moldau {command} --help'.\n"
    )
    assert state(kafka, topic, group) == before


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name in group.commands:
        _, command, _ = group.resolve_command(None, [name])
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def test_every_destructive_command_accepts_yes() -> None:
    found = dict(commands(typer.main.get_command(app)))
    telling = {name for name in found if any(word in name for word in TELLING_WORDS)}
    assert telling == DESTRUCTIVE.keys() | OTHERS | HARMLESS
    taking = {
        name for name, one in found.items() if any("--yes" in each.opts for each in one.params)
    }
    assert taking == DESTRUCTIVE.keys() | OTHERS


@pytest.mark.parametrize(("typed", "status", "offset"), [(b"n\n", 130, 2), (b"y\n", 0, 0)])
def test_a_plan_is_shown_before_it_is_confirmed(
    kafka: KafkaCommand, written: tuple[str, str], typed: bytes, status: int, offset: int
) -> None:
    topic, group = written
    move = ("reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    ended, printed = kafka.on_a_terminal("groups", *move, typed=typed)
    assert ended == status
    assert "new offset" in printed.partition("Change the offsets to these?")[0]
    assert state(kafka, topic, group)[1] == [(topic, offset)]


def test_confirmation_is_requested_although_stdout_is_redirected(
    kafka: KafkaCommand, written: tuple[str, str]
) -> None:
    topic, _ = written
    delete = ("topics", "delete", topic, "--json")
    status, asked, output = kafka.with_output_elsewhere(*delete, typed=b"y\n")
    assert (status, f"Delete {topic} and all their records?" in asked) == (0, True)
    assert output == f'[{{"name":"{topic}","deleted":true}}]\n'
