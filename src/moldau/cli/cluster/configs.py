"""`moldau configs`: settings of topics, brokers, groups and client metrics subscriptions."""

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
from moldau.cli.shared.output import AsJson, show_json, show_table
from moldau.cli.shared.parsing import parse_settings

if TYPE_CHECKING:
    from moldau.client.admin.configs import ConfigEntry, ConfigResource, Operation
    from moldau.client.cluster.cluster import Cluster

app = new_app(help="Settings of topics, brokers and groups.", no_args_is_help=True)

DEFAULT_BROKER = "default"
# Apache Kafka writes its documentation for web pages.
_TAG = re.compile(r"<[^>]*>")


class KindChoice(Enum):
    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


Kind = Annotated[
    KindChoice,
    typer.Argument(
        metavar="KIND",
        help=f"Kind of resource: {', '.join(kind.value for kind in KindChoice)}.",
        show_default=False,
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the resource: a topic, a broker id ('default': all brokers), a group.",
        show_default=False,
    ),
]
Changes = Annotated[
    list[str],
    typer.Argument(metavar="NAME=VALUE...", help="Settings and their values.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate without changing anything.")]


def _resource(kind: KindChoice, name: str) -> "ConfigResource":
    from moldau.client.admin.configs import ConfigResource
    from moldau.protocol.enums import ConfigResourceType

    if kind in {KindChoice.BROKER, KindChoice.BROKER_LOGGER}:
        if name == DEFAULT_BROKER and kind is KindChoice.BROKER:
            name = ""
        elif not name.isdigit():
            raise typer.BadParameter(f"'{name}' is not a broker id.")
    return ConfigResource(ConfigResourceType[kind.name], name)


@app.command("describe", no_args_is_help=True)
@connected
def describe(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    kind: Kind,
    name: Name,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="SETTING...", help="Only these settings.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings that have their default.")
    ] = False,
    synonyms: Annotated[
        bool, typer.Option("--synonyms", "-s", help="Show the other sources of each value.")
    ] = False,
    documentation: Annotated[
        bool, typer.Option("--docs", "-d", help="Show the documentation of each setting.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show settings that differ from their default, and where the values come from.

    [bold]Examples[/]

      moldau configs describe topic orders

      moldau configs describe topic orders retention.ms --synonyms

      moldau configs describe broker 1 --all --json

      moldau configs describe broker default
    """
    from moldau.client.admin.configs import ConfigSource, describe_configs

    resource = _resource(kind, name)

    async def fetch(cluster: "Cluster") -> list["ConfigEntry"]:
        if kind is KindChoice.TOPIC:
            await cluster.topic(name)
        return await describe_configs(
            cluster, resource, names=keys or None, documentation=documentation
        )

    entries = run(connection, fetch)
    if not (everything or keys):
        entries = [entry for entry in entries if entry.source is not ConfigSource.DEFAULT_CONFIG]
    if as_json:
        show_json([_entry_json(entry) for entry in entries])
        return
    rows = [
        (
            entry.name,
            "***" if entry.is_sensitive else entry.value,
            entry.source.name,
            "read-only" if entry.is_read_only else "",
            _synonyms_text(entry) if synonyms else "",
            _TAG.sub("", entry.documentation or "") if documentation else "",
        )
        for entry in entries
    ]
    show_table(("setting", "value", "source", "changes", "synonyms", "documentation"), rows)


def _synonyms_text(entry: "ConfigEntry") -> str:
    return " ".join(
        f"{synonym.source.name}:{synonym.name}={synonym.value}" for synonym in entry.synonyms
    )


def _entry_json(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "type": entry.kind.name,
        "readOnly": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name}
            for synonym in entry.synonyms
        ],
        "documentation": entry.documentation,
    }


@app.command("set", no_args_is_help=True)
@connected
def set_values(
    connection: Connection, kind: Kind, name: Name, changes: Changes, dry_run: DryRun = False
) -> None:
    """Set the value of settings.

    [bold]Examples[/]

      moldau configs set topic orders retention.ms=3600000 cleanup.policy=delete

      moldau configs set broker default log.retention.ms=86400000
    """
    from moldau.client.admin.configs import Operation

    _alter(connection, (kind, name), parse_settings(changes), Operation.SET, dry_run=dry_run)


@app.command("append", no_args_is_help=True)
@connected
def append(
    connection: Connection, kind: Kind, name: Name, changes: Changes, dry_run: DryRun = False
) -> None:
    """Append items to list settings.

    [bold]Example[/]

      moldau configs append topic users cleanup.policy=compact
    """
    from moldau.client.admin.configs import Operation

    _alter(connection, (kind, name), parse_settings(changes), Operation.APPEND, dry_run=dry_run)


@app.command("subtract", no_args_is_help=True)
@connected
def subtract(
    connection: Connection, kind: Kind, name: Name, changes: Changes, dry_run: DryRun = False
) -> None:
    """Remove items from list settings.

    [bold]Example[/]

      moldau configs subtract topic users cleanup.policy=delete
    """
    from moldau.client.admin.configs import Operation

    _alter(connection, (kind, name), parse_settings(changes), Operation.SUBTRACT, dry_run=dry_run)


@app.command("delete", no_args_is_help=True)
@connected
def delete(
    connection: Connection,
    kind: Kind,
    name: Name,
    keys: Annotated[
        list[str],
        typer.Argument(metavar="SETTING...", help="Names of settings.", show_default=False),
    ],
    dry_run: DryRun = False,
) -> None:
    """Delete settings, so that their defaults apply again.

    [bold]Example[/]

      moldau configs delete topic orders retention.ms
    """
    from moldau.client.admin.configs import Operation

    _alter(connection, (kind, name), dict.fromkeys(keys), Operation.DELETE, dry_run=dry_run)


def _alter(
    connection: Connection,
    target: tuple[KindChoice, str],
    values: "dict[str, str] | dict[str, None]",
    operation: "Operation",
    *,
    dry_run: bool,
) -> None:
    from moldau.client.admin.configs import ConfigChange, alter_configs

    kind, name = target
    resource = _resource(kind, name)
    changes = [ConfigChange(key, operation, value) for key, value in values.items()]

    async def work(cluster: "Cluster") -> None:
        if kind is KindChoice.TOPIC:
            await cluster.topic(name)
        await alter_configs(cluster, resource, changes, validate_only=dry_run)

    run(connection, work)
    plural = "setting" if len(changes) == 1 else "settings"
    verb = "would change" if dry_run else "changed"
    print_line(f"{verb} {len(changes)} {plural} of {kind.value} {name}")


@app.command("list")
@connected
def list_resources(
    connection: Connection,
    kind: Annotated[
        KindChoice | None,
        typer.Argument(metavar="KIND", help="Kind of resource (default: all).", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List resources with settings: topics, brokers, groups, client metrics subscriptions.

    [bold]Example[/]

      moldau configs list group
    """
    from moldau.client.admin.configs import list_config_resources
    from moldau.protocol.enums import ConfigResourceType

    kinds = list(KindChoice) if kind is None else [kind]

    async def fetch(cluster: "Cluster") -> list[tuple[str, str]]:
        return [
            (each_kind.value, name)
            for each_kind in kinds
            for name in await list_config_resources(cluster, ConfigResourceType[each_kind.name])
        ]

    rows = run(connection, fetch)
    if as_json:
        show_json([{"kind": row_kind, "name": name} for row_kind, name in rows])
    else:
        show_table(("kind", "name"), rows)
