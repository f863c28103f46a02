"""The short form of `moldau demo`: commands, as the user would type them."""

import asyncio
import os
import sys

import typer

from moldau.cli.shared.connection import BOOTSTRAP_VARIABLE
from moldau.protocol.errors import MoldauError

TOPIC = "river"
_LINES = ("moldau:rises in the Bohemian Forest", "vltava:is its other name", "elbe:takes it in")
_STEPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("topics", "create", TOPIC, "--partitions", "3", "--if-not-exists"), ()),
    (("produce", TOPIC, "--key-separator", ":"), _LINES),
    (("consume", TOPIC, "--group", "demo", "--from", "beginning", "--max", "3", "--keys"), ()),
    (("groups", "describe", "demo"), ()),
)
_STEP_DEADLINE_S = 60


async def show_commands(address: str, stop: asyncio.Event) -> None:
    typer.echo(f"A Kafka node runs on {address}. Any Kafka client can use it. For example:")
    for arguments, lines in _STEPS:
        if stop.is_set():
            return
        await _step(address, arguments, lines)


async def _step(address: str, arguments: tuple[str, ...], lines: tuple[str, ...]) -> None:
    """Runs one command, as typed in a terminal."""
    typed = " ".join(("moldau", *arguments))
    stdin = "".join(f"{line}\n" for line in lines)
    typer.echo("\n" + typer.style(f"$ {typed}", bold=True))
    if stdin:
        typer.echo(stdin, nl=False)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "moldau",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, BOOTSTRAP_VARIABLE: address, "COLUMNS": "100"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_STEP_DEADLINE_S):
            output, _ = await process.communicate(stdin.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise MoldauError(f"`{typed}` did not end within {_STEP_DEADLINE_S} s") from None
    typer.echo(output.decode(), nl=False)
    if process.returncode:
        raise MoldauError(f"`{typed}` failed with status {process.returncode}")
