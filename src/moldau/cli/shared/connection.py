"""Connects a command to a cluster: the options that all commands share, and the event loop that
runs them. Ctrl-C cancels the running work, which can clean up, and the status is 130.
"""

import asyncio
import functools
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from moldau.cli.shared.quiet_pipe import quiet_pipe
from moldau.config.addresses import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from moldau.client.cluster.cluster import Cluster
    from moldau.client.cluster.settings import ClientSettings
    from moldau.config.client_settings.common import ClientConfig

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

PANEL = "Connection"
BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"

_Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="Brokers to connect to first, separated by commas.",
        rich_help_panel=PANEL,
    ),
]
_CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties file, as for Kafka's tools.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
_Patience = Annotated[
    float,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        min=0.1,
        max=3600,
        help="How long to retry while brokers are unavailable.",
        rich_help_panel=PANEL,
    ),
]
# What a shell reports for a program that SIGTERM ended.
TERMINATED_STATUS = 143
_PATIENCE_S = 30.0


class Connection(NamedTuple):
    bootstrap: str = DEFAULT_BOOTSTRAP
    command_config: Path | None = None
    patience_s: float = _PATIENCE_S

    def properties(self) -> dict[str, str]:
        from moldau.cli.shared.server_properties import read_server_properties

        if self.command_config is None:
            return {}
        return read_server_properties(self.command_config)

    def client(self, config_class: "type[ClientConfig]", **settings: Any) -> dict[str, Any]:
        """Keyword arguments for a client of that kind. Properties of the file that the client does
        not know are left out; the command's own settings override the file's.
        """
        own = {setting.name for setting in config_class.declared.values()}
        in_file = {name: text for name, text in self.properties().items() if name in own}
        attributes = {name: config_class.declared[name].attribute for name in in_file}
        kept = {name: text for name, text in in_file.items() if attributes[name] not in settings}
        kept.pop("bootstrap.servers", None)
        return {"bootstrap_servers": self.bootstrap, "config": kept, **settings}

    def settings(self) -> "ClientSettings":
        from dataclasses import replace

        from moldau.client.cluster.settings import client_settings

        settings = client_settings(self.bootstrap, self.properties())
        if self.patience_s != _PATIENCE_S:
            settings = replace(settings, retry_for_ms=round(self.patience_s * 1000))
        return settings


def connected(command: Command) -> Command:
    """Replaces a command's parameter `connection` by the options that make a Connection."""
    own = inspect.signature(command).parameters
    shared = {"bootstrap": _Bootstrap, "command_config": _CommandConfig, "patience": _Patience}
    defaults = dict(zip(shared, Connection(), strict=True))

    @functools.wraps(command)
    def with_options(**options: Any) -> Any:
        connection = Connection(*(options.pop(name) for name in shared))
        with quiet_pipe():
            return command(connection=connection, **options)

    kept = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        if name != "connection"
    ]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation
        )
        for name, annotation in shared.items()
    ]
    annotations = command.__annotations__ | shared
    annotations.pop("connection", None)
    vars(with_options)["__signature__"] = inspect.Signature([*kept, *added])
    with_options.__annotations__ = annotations
    return with_options  # type: ignore[return-value]


def run(
    connection: Connection, action: Callable[["Cluster"], Awaitable[Result]], *, fast: bool = False
) -> Result:
    """Runs a command's work against a cluster. `fast` uses uvloop, which is quicker but takes a
    while to import.
    """
    settings = connection.settings()

    async def work() -> Result:
        from moldau.client.cluster.cluster import Cluster
        from moldau.client.errors import ClientError, NoBrokerError

        async with Cluster(settings) as cluster:
            try:
                return await action(cluster)
            except NoBrokerError as error:
                hint = f"set the brokers with --bootstrap or {BOOTSTRAP_VARIABLE}"
                raise ClientError(f"{error}; {hint}") from None

    with asyncio.Runner(loop_factory=_fast_loop if fast else None) as runner:
        return runner.run(_cancelled_by_sigterm(work()))


async def _cancelled_by_sigterm(work: Awaitable[Result]) -> Result:
    """SIGTERM cancels the work as Ctrl-C does, so that a member leaves its group."""
    task = asyncio.ensure_future(work)
    was_terminated = False

    def terminate() -> None:
        nonlocal was_terminated
        was_terminated = True
        task.cancel()

    loop = asyncio.get_running_loop()
    is_handled = threading.current_thread() is threading.main_thread()
    if is_handled:
        try:
            loop.add_signal_handler(signal.SIGTERM, terminate)
        except NotImplementedError:
            # Windows has no SIGTERM.
            is_handled = False
    try:
        return await task
    except asyncio.CancelledError:
        if was_terminated:
            raise typer.Exit(TERMINATED_STATUS) from None
        raise
    finally:
        if is_handled:
            loop.remove_signal_handler(signal.SIGTERM)


def _fast_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
