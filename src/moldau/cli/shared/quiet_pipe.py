"""A quiet end when the reader of a pipe leaves."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

# What a shell reports for a program that SIGPIPE ended.
BROKEN_PIPE_STATUS = 141


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
