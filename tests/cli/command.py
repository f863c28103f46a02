"""Runs `moldau` as users do, in a process of its own; or in ours, where it is the same."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from moldau.cli import run

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


def moldau_here(*arguments: object, cwd: Path | None = None, **environment: str) -> Ran:
    """Without a process, which takes most of a second to start on a busy machine."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, environment),
        _warnings_as_before(),
    ):
        status = run([*map(str, arguments)])
    return Ran(status, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def _warnings_as_before() -> Iterator[None]:
    shown_by = warnings.showwarning
    try:
        yield
    finally:
        warnings.showwarning = shown_by
