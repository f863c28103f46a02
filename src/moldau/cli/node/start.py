"""`moldau start`: runs one node until a signal stops it."""

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from moldau.broker.node.event_loop import run_in_loop
from moldau.broker.node.garbage_collection import GarbageCollection
from moldau.broker.node.node import Node, NodeOptions
from moldau.cli.node.stop_signals import StopSignals
from moldau.cli.shared.logs import set_up_logs
from moldau.cli.shared.server_properties import Strict, read_server_properties, with_port
from moldau.config.addresses import DEFAULT_HOST, DEFAULT_PORT
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.tasks import Tasks
from moldau.protocol.errors import MoldauError

_log = logging.getLogger(__name__)

DEFAULT_DIRECTORY = "moldau-data"
THREAD_TURN_S = 0.0005

_HELP = """Run one Kafka node: a broker, a controller, or both in one process.

With --config it has the roles that process.roles names. Without, it has both, keeps its data in
--dir, which it formats at the first start, and listens on this machine only.

[bold]Examples[/bold]

  moldau start                                   # data in ./moldau-data, port 9092
  moldau start --dir /var/lib/moldau --port 9192
  moldau start --ephemeral --port 0              # for a test: temporary directory, free port
  moldau start --config server.properties --set log.retention.hours=24
"""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_Directory = Annotated[
    Path | None, typer.Option("--dir", help=f"Data directory ({DEFAULT_DIRECTORY}).")
]
_Port = Annotated[
    int | None,
    typer.Option("--port", "-p", min=0, max=65535, help="Port for clients (9092); 0: a free port."),
]
_Host = Annotated[str | None, typer.Option(help=f"Address to listen on ({DEFAULT_HOST}).")]
_Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Kafka's server.properties file.")
]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Override a setting; repeatable."),
]
_Ephemeral = Annotated[
    bool,
    typer.Option("--ephemeral", help="Keep the data in a temporary directory, then delete it."),
]
_ReadyFile = Annotated[
    Path | None, typer.Option(help="File to write HOST:PORT to when the node is ready.")
]
_InsecureListener = Annotated[
    list[str] | None,
    typer.Option(help="Allow this listener to accept remote connections without authentication."),
]
_MetricsPort = Annotated[
    int | None, typer.Option(help="Serve /metrics for Prometheus on this port.")
]
_MetricsHost = Annotated[
    str | None, typer.Option(help=f"Address to serve /metrics on ({DEFAULT_HOST}).")
]


def start(  # noqa: PLR0913 - each is an option of the command
    directory: _Directory = None,
    port: _Port = None,
    host: _Host = None,
    config: _Config = None,
    settings: _Settings = None,
    strict: Strict = False,
    ephemeral: _Ephemeral = False,
    ready_file: _ReadyFile = None,
    insecure_listener: _InsecureListener = None,
    metrics_port: _MetricsPort = None,
    metrics_host: _MetricsHost = None,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level to log.")] = LogLevel.INFO,
) -> None:
    set_up_logs(log_format.value, log_level.value)
    if config is not None and (directory is not None or ephemeral):
        raise MoldauError("--config sets the data directory; leave out --dir and --ephemeral")
    if config is not None and host is not None:
        raise MoldauError("--config sets the listeners; leave out --host")
    if directory is not None and ephemeral:
        raise MoldauError("--ephemeral uses a temporary directory; leave out --dir")
    if ready_file is not None:
        # A script that waits for the file must not find the one of an earlier run.
        ready_file.unlink(missing_ok=True)
    with contextlib.ExitStack() as cleanup:
        if config is not None:
            properties = read_server_properties(config)
            if port is not None:
                properties = with_port(properties, port)
        else:
            if ephemeral:
                log_dir = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="moldau-"))
            else:
                log_dir = str(directory or DEFAULT_DIRECTORY)
            properties = standalone_properties(
                log_dir, host=host or DEFAULT_HOST, port=DEFAULT_PORT if port is None else port
            )
        if ephemeral:
            properties |= {"moldau.flush.policy": "os", "moldau.reserve.bytes": "0"}
        typed = _settings(settings or [])
        properties |= typed
        properties |= _metrics_settings(metrics_port, metrics_host)
        options = NodeOptions(
            formats_itself=config is None,
            config_file=config,
            insecure_listeners=frozenset(insecure_listener or ()),
        )
        # A thread that returns from the disk has answers that clients wait for.
        sys.setswitchinterval(THREAD_TURN_S)
        # An unknown setting on the command line is a mistake; in a file it may be a plug-in's.
        refused = properties if strict else typed
        _warn_of_unknown(properties, refused)
        parsed = BrokerConfig.parse(properties)
        parsed.refuse_unknown(refused)
        node = Node(parsed, options)
        run_in_loop(_run(node, ready_file))


start.__doc__ = _HELP


def _warn_of_unknown(properties: Mapping[str, str], refused: Mapping[str, str]) -> None:
    """Called before other checks: a misspelt setting may be why one of them fails."""
    for name in BrokerConfig.unknown_among(properties):
        if name not in refused:
            _log.warning("%s", BrokerConfig.unknown_complaint(name))


async def _run(node: Node, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with StopSignals(lambda: loop.call_soon_threadsafe(stop.set)):
        await _start_and_stop(node, ready_file, stop)
    _log.info("stopped")
    if node.failure is not None:
        raise MoldauError(node.failure)


async def start_unless(stop: asyncio.Event, node: Node) -> bool:
    """Starts the node. False if it was stopped first: after a crash a start may take long."""
    tasks = Tasks()
    starting = tasks.start(node.start(), "start", expects=(Exception,))
    stopping = tasks.start(stop.wait(), "wait for a signal")
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        is_given_up = not starting.done()
    finally:
        await tasks.close()
    if not is_given_up:
        starting.result()
    return not is_given_up


async def _start_and_stop(node: Node, ready_file: Path | None, stop: asyncio.Event) -> None:
    garbage_collection = GarbageCollection(node.clock)
    # Before the start: loading the metadata of a large cluster makes millions of objects.
    garbage_collection.start()
    try:
        if await start_unless(stop, node):
            await _run_until(node, ready_file, stop)
        else:
            _log.info("stopped before it was ready")
    finally:
        garbage_collection.stop()
        await node.stop()


async def _run_until(node: Node, ready_file: Path | None, stop: asyncio.Event) -> None:
    try:
        address = node.address
        sys.stdout.write(f"moldau ready on {address} ({node.description})\n")
        sys.stdout.flush()
        if ready_file is not None:
            _write_whole(ready_file, f"{address}\n")
        await node.wait_until_failed_or(stop)
        _log.info("stopping")
    finally:
        if ready_file is not None:
            _remove(ready_file)


def _write_whole(path: Path, text: str) -> None:
    """Replaces the file in one step, so that a waiting script never reads half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def _remove(path: Path) -> None:
    """An error does not keep the node from stopping."""
    with contextlib.suppress(OSError):
        path.unlink()


def _metrics_settings(port: int | None, host: str | None) -> dict[str, str]:
    if host is not None and port is None:
        raise MoldauError("--metrics-host needs --metrics-port")
    options = {"moldau.metrics.port": port, "moldau.metrics.host": host}
    return {name: str(value) for name, value in options.items() if value is not None}


def _settings(pairs: list[str]) -> dict[str, str]:
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise MoldauError(f"--set {pair!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties
