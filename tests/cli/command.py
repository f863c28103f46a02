"""Runs `moldau` as users do: a process of its own, with its status and its two outputs."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

COMMAND = (sys.executable, "-m", "moldau")


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def moldau(*arguments: object, cwd: Path | None = None, **environment: str) -> Ran:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        env=os.environ | environment,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
