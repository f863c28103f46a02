"""The commands of `moldau`, one module each; a module is imported when its command is run."""

from typing import Annotated

import typer

from moldau.cli.lazy_commands import Command, LazyCommand, lazy_group
from moldau.cli.version import version_text

_NODE = "Node"
_USE = "Records"
_ADMINISTER = "Cluster"
_FILES = "Files"


def _start() -> Command:
    from moldau.cli.node.start import start

    return start


def _demo() -> Command:
    from moldau.cli.demo.command import demo

    return demo


def _produce() -> Command:
    from moldau.cli.records.produce import produce

    return produce


def _consume() -> Command:
    from moldau.cli.records.consume import consume

    return consume


def _offsets() -> Command:
    from moldau.cli.records.offsets import offsets

    return offsets


def _records() -> Command:
    from moldau.cli.records.delete import app

    return app


def _topics() -> Command:
    from moldau.cli.topics.command import app

    return app


def _groups() -> Command:
    from moldau.cli.groups.command import app

    return app


def _transactions() -> Command:
    from moldau.cli.transactions.command import app

    return app


def _configs() -> Command:
    from moldau.cli.cluster.configs import app

    return app


def _cluster() -> Command:
    from moldau.cli.cluster.command import app

    return app


def _logdirs() -> Command:
    from moldau.cli.cluster.logdirs import logdirs

    return logdirs


def _pipeline() -> Command:
    from moldau.cli.pipeline.command import app

    return app


def _bench() -> Command:
    from moldau.cli.bench.command import app

    return app


def _storage() -> Command:
    from moldau.cli.node.storage import app

    return app


def _dump() -> Command:
    from moldau.cli.dump.command import dump

    return dump


COMMANDS = {
    "start": LazyCommand(_start, "Run a node: broker and controller.", _NODE, needs_locks=True),
    "demo": LazyCommand(
        _demo,
        "Run a broker, a stream of orders and a pipeline.",
        _NODE,
        needs_locks=True,
    ),
    "produce": LazyCommand(_produce, "Write records to a topic.", _USE, True),
    "consume": LazyCommand(_consume, "Read records from topics.", _USE, True),
    "offsets": LazyCommand(_offsets, "Show offsets of partitions.", _USE),
    "records": LazyCommand(_records, "Delete records before an offset.", _USE),
    "topics": LazyCommand(_topics, "List, create, describe, alter and delete topics.", _ADMINISTER),
    "groups": LazyCommand(_groups, "Consumer groups: members, lag, offsets.", _ADMINISTER),
    "transactions": LazyCommand(
        _transactions,
        "Transactions: state, producers, hanging transactions.",
        _ADMINISTER,
    ),
    "configs": LazyCommand(_configs, "Settings of topics, brokers and groups.", _ADMINISTER),
    "cluster": LazyCommand(
        _cluster,
        "Brokers, controller, features, API versions.",
        _ADMINISTER,
    ),
    "logdirs": LazyCommand(_logdirs, "Disk usage by broker and log directory.", _ADMINISTER),
    "pipeline": LazyCommand(
        _pipeline,
        "Run pipelines on Spark, in Python or YAML.",
        _USE,
        needs_locks=True,
    ),
    "bench": LazyCommand(_bench, "Measure a broker under load.", _ADMINISTER),
    "storage": LazyCommand(
        _storage,
        "Format and inspect log directories.",
        _FILES,
        needs_locks=True,
    ),
    "dump": LazyCommand(
        _dump,
        "Inspect files of a log directory.",
        _FILES,
        needs_arguments=True,
        needs_locks=True,
    ),
}

app = typer.Typer(
    name="moldau",
    cls=lazy_group(COMMANDS),
    help="Apache Kafka rebuilt in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
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
            help="Show the version, the Python version, and whether compiled loops are in use.",
        ),
    ] = False,
) -> None:
    """Apache Kafka rebuilt in Python."""
