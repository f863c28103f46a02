"""Runs `moldau` against a broker, and makes fresh names on it."""

import itertools
import json
import os
import pty
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

from cli.command import COMMAND, Ran, moldau, moldau_here

_numbers = itertools.count()


def fresh(name: str) -> str:
    return f"{name}-{os.getpid()}-{next(_numbers)}"


@dataclass(frozen=True, slots=True)
class KafkaCommand:
    address: str

    def __call__(self, *arguments: object, stdin: bytes = b"", status: int = 0) -> Ran:
        """Runs in the test's process, and checks the exit status."""
        ran = moldau_here(*arguments, stdin=stdin, MOLDAU_BOOTSTRAP=self.address)
        assert ran.status == status, ran
        return ran

    def with_any_status(self, *arguments: object) -> Ran:
        return moldau_here(*arguments, MOLDAU_BOOTSTRAP=self.address)

    def alone(self, *arguments: object, stdin: bytes = b"", status: int = 0) -> Ran:
        """In a process of its own."""
        ran = moldau(*arguments, stdin=stdin, MOLDAU_BOOTSTRAP=self.address)
        assert ran.status == status, ran
        return ran

    def json(self, *arguments: object, stdin: bytes = b"", status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin, status=status).output)

    def json_lines(self, *arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json").lines]

    def start(self, *arguments: object) -> "subprocess.Popen[bytes]":
        """Runs beside the test. A shell that runs the tests in the background has them ignore
        interrupts, which this command must not.
        """
        return subprocess.Popen(
            ["env", "--default-signal=INT", *COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"MOLDAU_BOOTSTRAP": self.address},
        )

    def on_a_terminal(
        self,
        *arguments: object,
        typed: bytes = b"",
        output: IO[bytes] | None = None,
        **environment: str,
    ) -> tuple[int, str]:
        """All three streams are a terminal, except that `output` may go elsewhere."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=theirs,
            stdout=output or theirs,
            stderr=theirs,
            env=os.environ
            | {"TERM": "xterm-256color", "COLUMNS": "120", "MOLDAU_BOOTSTRAP": self.address}
            | environment,
        ) as running:
            os.close(theirs)
            os.write(ours, typed)
            printed = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:
                    break
                if not piece:
                    break
                printed += piece
        os.close(ours)
        return running.returncode, printed.decode()

    def with_output_elsewhere(self, *arguments: object, typed: bytes) -> tuple[int, str, str]:
        """Status, what the terminal shows, and what went into the pipe."""
        with tempfile.TemporaryFile() as output:
            status, printed = self.on_a_terminal(*arguments, typed=typed, output=output)
            output.seek(0)
            return status, printed, output.read().decode()

    def has_member(self, group: str) -> bool:
        """Whether the group has a member, and no rebalance is in progress."""
        printed = self.with_any_status("groups", "describe", group, "--json").output
        found = json.loads(printed) if printed else []
        return any(one["members"] and one["state"] == "Stable" for one in found)

    def topic(self, partitions: int = 1, *options: object) -> str:
        name = fresh("topic")
        self("topics", "create", name, "--partitions", partitions, *options)
        return name

    def fill(self, topic: str, values: Iterable[str], *options: object) -> None:
        self("produce", topic, *options, stdin="".join(f"{v}\n" for v in values).encode())
