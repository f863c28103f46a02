"""Every example in the help can be typed: it is shown as written, and parsed."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from cli.command import moldau_here

from moldau.cli.app import app


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.commands:
        _, command, _ = group.resolve_command(None, [name])
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def examples(command: Any) -> list[str]:
    lines = [line.strip() for line in (command.help or "").splitlines()]
    return [line.replace("\\[", "[") for line in lines if re.match(r"(echo .*\| )?moldau ", line)]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_are_shown_as_they_are_written_and_understood(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    shown = moldau_here(*path, "--help", COLUMNS="200").output
    for example in examples(command):
        assert example in shown
        # Pipes and signs inside quotes do not end a command.
        plain = re.sub(r"'[^']*'|\$\([^)]*\)", "quoted", example)
        for xargs, part in re.findall(r"(xargs )?(moldau [^|<>#]*)", plain):
            understood(part + " named" if xargs else part)


def understood(line: str) -> None:
    """The options and arguments belong to the command; nothing is run."""
    words = shlex.split(line)[1:]
    length = next(size for size in (2, 1) if tuple(words[:size]) in COMMANDS)
    COMMANDS[tuple(words[:length])].make_context(words[0], words[length:]).close()
