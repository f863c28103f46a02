"""Runs `moldau` in a process of its own as users do, or in the test's process where that is
equivalent.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
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


def moldau(
    *arguments: object, cwd: Path | None = None, stdin: bytes = b"", **environment: str
) -> Ran:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        input=stdin,
        env=os.environ | environment,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def moldau_here(
    *arguments: object, cwd: Path | None = None, stdin: bytes = b"", **environment: str
) -> Ran:
    """In the test's process: starting another takes most of a second on a busy machine."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    errors = io.StringIO()
    with (
        _stdin_holding(stdin),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, environment),
        _warnings_as_before(),
    ):
        status = run([*map(str, arguments)])
    assert isinstance(output.buffer, io.BytesIO)
    return Ran(status, output.buffer.getvalue().decode(), errors.getvalue())


@contextlib.contextmanager
def _stdin_holding(content: bytes) -> Iterator[None]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with (
            io.TextIOWrapper(io.FileIO(file.fileno(), closefd=False)) as stdin,
            mock.patch.object(sys, "stdin", stdin),
        ):
            yield


@contextlib.contextmanager
def _warnings_as_before() -> Iterator[None]:
    shown_by = warnings.showwarning
    try:
        yield
    finally:
        warnings.showwarning = shown_by
