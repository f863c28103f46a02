"""`moldau storage`: formats and inspects log directories, as kafka-storage does."""

from pathlib import Path
from typing import Annotated

import typer

from moldau.broker.node.formatting import FormatOptions, directories_of, format_node
from moldau.broker.node.storage_info import StorageInfo, storage_info
from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.output import PROBLEMS_STATUS, AsJson, show_json
from moldau.cli.shared.server_properties import Strict, read_broker_config
from moldau.core.metadata.image import METADATA_VERSION
from moldau.core.metadata.starting_features import level_name, parse_feature
from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.net.clock import Clock
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import uuid_text

app = new_app(help="Format and inspect log directories.", no_args_is_help=True)

ConfigFile = Annotated[
    Path, typer.Option("--config", "-c", help="The node's server.properties.", show_default=False)
]


ClusterId = Annotated[
    str,
    typer.Option(
        "--cluster-id", "-t", help="Cluster id, the same on all nodes.", show_default=False
    ),
]
Standalone = Annotated[
    bool, typer.Option("--standalone", "-s", help="Make this controller the only voter.")
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY,…",
        help="Voters of a dynamic quorum; the same list on all nodes.",
    ),
]
NoInitialControllers = Annotated[
    bool,
    typer.Option("--no-initial-controllers", "-N", help="Let this controller join a quorum later."),
]
ReleaseVersion = Annotated[
    str | None,
    typer.Option("--release-version", "-r", help="Start with the feature levels of this release."),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--feature", "-f", metavar="NAME=LEVEL", help="Start with this feature level; repeatable."
    ),
]
ScramUsers = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[…]",
        help="Add a user with a SCRAM password; repeatable.",
    ),
]
IgnoreFormatted = Annotated[
    bool, typer.Option("--ignore-formatted", "-g", help="Leave formatted directories as they are.")
]


@app.command("format", no_args_is_help=True)
def format_directories(  # noqa: PLR0913 - kafka-storage's options
    config: ConfigFile,
    cluster_id: ClusterId,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    release_version: ReleaseVersion = None,
    feature: Features = None,
    add_scram: ScramUsers = None,
    ignore_formatted: IgnoreFormatted = False,
    strict: Strict = False,
) -> None:
    """Format the log directories of a server.properties for this node.

    [bold]Examples[/]

      moldau storage format -t $(moldau storage random-uuid) -c server.properties --standalone

      moldau storage format -t ID -c c.properties -s -S 'SCRAM-SHA-256=\\[name=alice,password=x]'
    """
    options = FormatOptions(
        cluster_id=cluster_id,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
        release_version=release_version,
        features=dict(map(parse_feature, feature or ())),
        scram_users=add_scram or (),
        ignore_formatted=ignore_formatted,
    )
    parsed = read_broker_config(config, strict=strict)
    done = format_node(DiskFileSystem(), parsed, options, Clock().wall_ms())
    for path, kind in done.directories:
        level = done.levels[METADATA_VERSION]
        typer.echo(f"Formatting {kind} {path} with {METADATA_VERSION} {level_name(level)}.")
    if not done.directories:
        typer.echo("All of the log directories are already formatted.")


@app.command("info", no_args_is_help=True)
def show_info(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's server.properties.", show_default=False),
    ] = None,
    directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir",
            "-d",
            metavar="DIRECTORY",
            help="A log directory; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    strict: Strict = False,
) -> None:
    """Show the node and cluster that log directories belong to, and problems of the directories.

    [bold]Examples[/]

      moldau storage info -c server.properties

      moldau storage info --dir /var/lib/moldau
    """
    if (config is None) == (not directories):
        raise typer.BadParameter("give either --config or --dir.")
    inspected = directories or []
    if config is not None:
        inspected = directories_of(read_broker_config(config, strict=strict))
    info = storage_info(DiskFileSystem(), inspected)
    if as_json:
        listed = [{"path": str(path), **_properties(meta)} for path, meta in info.metadata.items()]
        show_json({"directories": listed, "problems": info.problems})
    else:
        _show_lines(info)
    if info.problems:
        raise typer.Exit(PROBLEMS_STATUS)


@app.command("random-uuid")
def show_random_uuid() -> None:
    """Print a random UUID, for use as a cluster id."""
    typer.echo(uuid_text(random_uuid(SYSTEM_CHANCE)))


def _properties(meta: MetaProperties) -> dict[str, str | int | None]:
    directory_id = None if meta.directory_id is None else uuid_text(meta.directory_id)
    return {
        "cluster.id": meta.cluster_id,
        "directory.id": directory_id,
        "node.id": meta.node_id,
        "version": meta.version,
    }


def _show_lines(info: StorageInfo) -> None:
    """Prints lines like those of kafka-storage."""
    paths = [str(path) for path in info.directories]
    _show_list("Found log directory:", "Found log directories:", paths)
    for meta in list(info.metadata.values())[:1]:
        shown = ", ".join(f"{name}={value}" for name, value in _properties(meta).items())
        typer.echo(f"Found metadata: {{{shown}}}\n")
    _show_list("Found problem:", "Found problems:", info.problems)


def _show_list(title: str, title_of_many: str, lines: list[str]) -> None:
    if lines:
        typer.echo(title if len(lines) == 1 else title_of_many)
        for line in lines:
            typer.echo(f"  {line}")
        typer.echo()
