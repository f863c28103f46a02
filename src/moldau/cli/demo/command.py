"""`moldau demo`: a broker, a generator of orders, and a Spark pipeline that cleans and sums the
orders and stores each of them exactly once; without Spark, a few commands. It keeps running, so
that users can try it.
"""

import asyncio
import contextlib
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from moldau.broker.node.event_loop import run_in_loop
from moldau.broker.node.node import Node, NodeOptions
from moldau.cli.demo.commands import TOPIC, show_commands
from moldau.cli.shared.logs import set_up_logs
from moldau.cli.shared.quiet_pipe import quiet_pipe
from moldau.config.addresses import DEFAULT_PORT
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.protocol.errors import MoldauError

USUAL_FOLDER = Path("moldau-demo")
NODE_FOLDER = "node"

_Port = Annotated[
    int | None, typer.Option("--port", "-p", help="Port to listen on (9092, or a free port).")
]
_Dir = Annotated[
    Path, typer.Option("--dir", help="Directory for all data; the next demo resumes from it.")
]
_Rate = Annotated[int, typer.Option(min=1, help="Orders per second.")]
_Orders = Annotated[
    int | None,
    typer.Option(min=1, help="Publish this many orders, and exit when all are written."),
]
_Seconds = Annotated[
    int | None,
    typer.Option(min=1, help="Publish for this long, and exit when everything is written."),
]
_Commands = Annotated[
    bool, typer.Option("--commands", help="Only show a few commands, without Spark.")
]
_Once = Annotated[bool, typer.Option("--once", help="With --commands: exit after the commands.")]


def demo(  # noqa: PLR0913 - each parameter is an option of the command
    port: _Port = None,
    directory: _Dir = USUAL_FOLDER,
    rate: _Rate = 200,
    orders: _Orders = None,
    seconds: _Seconds = None,
    commands: _Commands = False,
    once: _Once = False,
) -> None:
    """Run a broker, a generator of orders, and a Spark pipeline that cleans, sums and stores them.

    It runs until Ctrl-C. The next run resumes where this one stopped.
    """
    set_up_logs("text", "warning")
    missing = None if commands else missing_for_pipelines()
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(quiet_pipe())
        chosen = _usual_or_free_port() if port is None else port
        data = directory / NODE_FOLDER
        data.mkdir(parents=True, exist_ok=True)
        properties = standalone_properties(str(data), host="127.0.0.1", port=chosen)
        node = Node(BrokerConfig.parse(properties), NodeOptions(formats_itself=True))
        if commands or missing is not None:
            if missing is not None:
                typer.echo(f"{missing}. The demo shows only commands, and no pipeline.\n")
            run_in_loop(_show_commands(node, stays=not once))
        else:
            from moldau.cli.demo.stage import Bounds, Stage

            stage = Stage(node, directory, Bounds(rate, orders, seconds))
            typer.echo(run_in_loop(stage.run()))


def missing_for_pipelines() -> str | None:
    """The requirement of pipelines that is not met, with its remedy; None if all are met."""
    from moldau.pipelines.run.requirements import missing_packages

    if missing_packages():
        return "Spark is not installed; install it with pip install 'moldau[spark]'"
    from moldau.spark.runtime.java import MissingJavaError, ensure_java

    try:
        ensure_java()
    except MissingJavaError as error:
        return str(error)
    return None


def _usual_or_free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return 0
        return DEFAULT_PORT


async def _show_commands(node: Node, *, stays: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await node.start()
    try:
        await show_commands(node.address, stop)
        if stays and not stop.is_set():
            typer.echo(_what_next(node.address))
            await node.wait_until_failed_or(stop)
            typer.echo("stopped")
    finally:
        await node.stop()
    if node.failure is not None:
        raise MoldauError(node.failure)


def _what_next(address: str) -> str:
    option = "" if address.endswith(f":{DEFAULT_PORT}") else f" -b {address}"
    return f"""
The node runs until you press Ctrl-C. In another terminal, with .venv/bin on your PATH:

  moldau produce {TOPIC}{option}               type lines, end with Ctrl-D
  moldau consume {TOPIC} --follow{option}      see them arrive
  moldau topics describe {TOPIC}{option}       partitions, offsets, sizes
  moldau groups reset-offsets demo --topic {TOPIC} --to-earliest{option}
  moldau bench produce {TOPIC}{option}         how fast is it?

Or point any Kafka client at bootstrap.servers={address}."""
