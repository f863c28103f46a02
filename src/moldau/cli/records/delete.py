"""`moldau records`: delete the oldest records of partitions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.output import AsJson, Yes, complain, confirm, finish, show_json, show_table
from moldau.cli.shared.parsing import parse_partitions

if TYPE_CHECKING:
    from moldau.client.cluster.cluster import Cluster
    from moldau.protocol.errors import MoldauError
    from moldau.types import TopicPartition

app = new_app(help="Delete records before an offset.", no_args_is_help=True)

_Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:0,1]...",
        help="Topics, or partitions of them.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
_Before = Annotated[
    int | None,
    typer.Option("--before", min=0, metavar="OFFSET", help="Delete everything before this offset."),
]
_File = Annotated[
    Path | None,
    typer.Option(
        "--offset-json-file",
        metavar="FILE",
        help="Offsets in the format of kafka-delete-records: "
        '{"partitions": [{"topic": …, "partition": …, "offset": …}]}.',
    ),
]


@app.callback()
def records() -> None:
    """Delete records before an offset."""


@app.command("delete", no_args_is_help=True)
@connected
def delete(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    topics: _Topics = None,
    before: _Before = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete all records up to now.")
    ] = False,
    file: _File = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of partitions.

    [bold]Examples[/]

      moldau records delete orders:0 --before 1000

      moldau records delete orders --all
    """
    if (before is None) + (not everything) + (file is None) != 2 or bool(topics) == bool(file):
        raise typer.BadParameter("name topics, with --before or --all; or give --offset-json-file.")
    confirm("Delete these records permanently?", yes=yes)

    async def work(cluster: "Cluster") -> "dict[TopicPartition, int | MoldauError]":
        from moldau.client.admin.offsets import HIGH_WATERMARK, delete_records

        if file is not None:
            return await delete_records(cluster, _read(file))
        names, partitions = parse_partitions(topics or ())
        for topic in (await cluster.topics(names)).values():
            partitions += topic.topic_partitions
        offset = HIGH_WATERMARK if before is None else before
        return await delete_records(cluster, dict.fromkeys(partitions, offset))

    outcomes = sorted(run(connection, work).items())
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "earliest": outcome if isinstance(outcome, int) else None,
            "error": None if isinstance(outcome, int) else _reason(outcome),
        }
        for partition, outcome in outcomes
    ]
    if as_json:
        show_json(rows)
    else:
        shown = [(row["topic"], row["partition"], row["earliest"]) for row in rows]
        show_table(("topic", "partition", "earliest"), shown)
    for row in rows:
        if row["error"]:
            complain("records delete", f"{row['topic']}-{row['partition']}: {row['error']}")
    finish(failed=any(row["error"] for row in rows))


def _reason(error: "MoldauError") -> str:
    from moldau.protocol.errors import KafkaError

    return error.code.name if isinstance(error, KafkaError) else str(error)


def _read(file: Path) -> "dict[TopicPartition, int]":
    from moldau.types import TopicPartition

    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
        return {
            TopicPartition(str(row["topic"]), int(row["partition"])): int(row["offset"])
            for row in document["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{file} is not in Kafka's format: {error!r}.") from None
