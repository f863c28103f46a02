"""`moldau demo`: starts a node and uses it before the user's eyes, with the commands that the user
would type; then it stays up to be tried.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from moldau.broker.node import Node, NodeOptions
from moldau.broker.runtime import run_in_loop
from moldau.cli.connection import BOOTSTRAP_VARIABLE
from moldau.cli.logs import set_up_logs
from moldau.cli.quiet_pipe import quiet_pipe
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.protocol.errors import MoldauError

USUAL_PORT = 9092
TOPIC = "river"
_LINES = ("moldau:rises in the Bohemian Forest", "vltava:is its other name", "elbe:takes it in")
_STEPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("topics", "create", TOPIC, "--partitions", "3"), ()),
    (("produce", TOPIC, "--key-separator", ":"), _LINES),
    (("consume", TOPIC, "--group", "demo", "--from", "beginning", "--max", "3", "--keys"), ()),
    (("groups", "describe", "demo"), ()),
)
_STEP_DEADLINE_S = 60

_Port = Annotated[
    int | None, typer.Option("--port", "-p", help="Listen here (9092, or a free port).")
]
_Dir = Annotated[Path | None, typer.Option("--dir", help="Keep the data here.")]
_Once = Annotated[bool, typer.Option("--once", help="End after the show.")]


def demo(port: _Port = None, directory: _Dir = None, once: _Once = False) -> None:
    """Start a node and use it before your eyes; it stays up for you to try."""
    set_up_logs("text", "warning")
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(quiet_pipe())
        place = directory or Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="moldau-demo-"))
        )
        chosen = _usual_or_free_port() if port is None else port
        properties = standalone_properties(str(place), host="127.0.0.1", port=chosen)
        node = Node(BrokerConfig.parse(properties), NodeOptions(formats_itself=True))
        run_in_loop(_show(node, stays=not once))


def _usual_or_free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
        return USUAL_PORT


async def _show(node: Node, *, stays: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await node.start()
    try:
        address = node.client_address
        typer.echo(f"A Kafka node runs on {address}. Any Kafka client can use it. For example:")
        for arguments, lines in _STEPS:
            if stop.is_set():
                return
            await _step(address, arguments, lines)
        if stays and not stop.is_set():
            typer.echo(_what_next(address))
            await node.wait_until_failed_or(stop)
            typer.echo("stopped")
    finally:
        await node.stop()
    if node.failure is not None:
        raise MoldauError(node.failure)


async def _step(address: str, arguments: tuple[str, ...], lines: tuple[str, ...]) -> None:
    """One command, as typed in a terminal."""
    typed = " ".join(("moldau", *arguments))
    given = "".join(f"{line}\n" for line in lines)
    typer.echo("\n" + typer.style(f"$ {typed}", bold=True))
    if given:
        typer.echo(given, nl=False)
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
            output, _ = await process.communicate(given.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise MoldauError(f"`{typed}` did not end in {_STEP_DEADLINE_S} s") from None
    typer.echo(output.decode(), nl=False)
    if process.returncode:
        raise MoldauError(f"`{typed}` failed with status {process.returncode}")


def _what_next(address: str) -> str:
    option = "" if address.endswith(f":{USUAL_PORT}") else f" -b {address}"
    return f"""
The node stays up until you press Ctrl-C. In another terminal, with .venv/bin on your PATH:

  moldau produce {TOPIC}{option}               type lines, end with Ctrl-D
  moldau consume {TOPIC} --follow{option}      see them arrive
  moldau topics describe {TOPIC}{option}       partitions, offsets, sizes
  moldau groups reset-offsets demo --topic {TOPIC} --to-earliest{option}
  moldau bench produce {TOPIC}{option}         how fast is it?

Or point any Kafka client at bootstrap.servers={address}."""
