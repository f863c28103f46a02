"""How commands print: the console for tables, and a quiet end when the reader of a pipe leaves."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

# What a shell reports for a program that SIGPIPE ended.
BROKEN_PIPE_STATUS = 141


class OutputConsole(Console):
    """Tables on stdout. Leaves a closed pipe to `quiet_pipe`."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """For the body of a command: `| head` is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit; let that go nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise typer.Exit(BROKEN_PIPE_STATUS) from None
