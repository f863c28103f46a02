"""Ends a command quietly when the reader of its pipe leaves."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

# What a shell reports for a program that SIGPIPE ended.
BROKEN_PIPE_STATUS = 141


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Wraps the body of a command, so that `| head` is not an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit, which must not fail.
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)
        raise typer.Exit(BROKEN_PIPE_STATUS) from None
