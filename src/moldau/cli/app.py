"""The commands of `moldau`, one module each; a module is imported when its command is run."""

from typing import Annotated

import typer

from moldau.cli.lazy_commands import LazyCommand, lazy_group
from moldau.cli.version import version_text

_USE = "Records"
_ADMINISTER = "Cluster"
_FILES = "Files"

_NODE = "Node"

COMMANDS = {
    "start": LazyCommand(
        "moldau.cli.start:start", "Run a node: broker and controller.", _NODE, needs_locks=True
    ),
    "demo": LazyCommand(
        "moldau.cli.demo:demo",
        "See orders, a node and a pipeline at work.",
        _NODE,
        needs_locks=True,
    ),
    "produce": LazyCommand("moldau.cli.produce:produce", "Write records to a topic.", _USE, True),
    "consume": LazyCommand("moldau.cli.consume:consume", "Read records of topics.", _USE, True),
    "offsets": LazyCommand("moldau.cli.offsets:offsets", "First and last offsets, by time.", _USE),
    "records": LazyCommand("moldau.cli.records:app", "Delete records before an offset.", _USE),
    "topics": LazyCommand("moldau.cli.topics:app", "Topics and their partitions.", _ADMINISTER),
    "groups": LazyCommand(
        "moldau.cli.groups:app", "Consumer groups: members, lag, offsets.", _ADMINISTER
    ),
    "transactions": LazyCommand(
        "moldau.cli.transactions:app", "Transactions: state, producers, hanging ones.", _ADMINISTER
    ),
    "configs": LazyCommand(
        "moldau.cli.configs:app", "Settings of topics, brokers and groups.", _ADMINISTER
    ),
    "cluster": LazyCommand(
        "moldau.cli.cluster:app", "Brokers, controller, features, API versions.", _ADMINISTER
    ),
    "logdirs": LazyCommand(
        "moldau.cli.logdirs:logdirs", "Sizes on disk, by broker and directory.", _ADMINISTER
    ),
    "pipeline": LazyCommand(
        "moldau.cli.pipeline:app", "Pipelines on Spark, in Python or YAML.", _USE, needs_locks=True
    ),
    "bench": LazyCommand("moldau.cli.bench:app", "Measure a broker under load.", _ADMINISTER),
    "storage": LazyCommand(
        "moldau.cli.storage:app",
        "Format log directories, say whose they are.",
        _FILES,
        needs_locks=True,
    ),
    "dump": LazyCommand(
        "moldau.cli.dump:dump",
        "Show files of a log directory and what is wrong.",
        _FILES,
        needs_arguments=True,
        needs_locks=True,
    ),
}

app = typer.Typer(
    name="moldau",
    cls=lazy_group(COMMANDS),
    help="Apache Kafka's system in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def moldau(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show version, Python, and whether compiled loops are used.",
        ),
    ] = False,
) -> None:
    """Apache Kafka's system in Python."""
