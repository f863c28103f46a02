"""`moldau offsets`: the first and last offset of partitions, or the offset at a time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.output import AsJson, show_json, show_table
from moldau.cli.shared.parsing import parse_partitions, parse_time_ms, time_text

if TYPE_CHECKING:
    from moldau.client.admin.offsets import FoundOffset
    from moldau.client.cluster.cluster import Cluster
    from moldau.types import TopicPartition

_SPECIAL = ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered")


@connected
def offsets(
    connection: Connection,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]...",
            help="Topics, or partitions of them (default: all topics except internal ones).",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="WHERE",
            help=f"A time, or one of {', '.join(_SPECIAL)} (default: first and last offset).",
            show_default=False,
        ),
    ] = None,
    committed: Annotated[
        bool,
        typer.Option("--committed", help="Show the last stable offset as the last one."),
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the first and last offset of partitions, or the offset at a time.

    [bold]Examples[/]

      moldau offsets orders

      moldau offsets orders:0,1 --at 2026-05-01T12:00:00

      moldau offsets --at max-timestamp --json
    """

    async def fetch(cluster: "Cluster") -> list[dict[str, Any]]:
        partitions = await _chosen(cluster, topics or [], internal=internal)
        if at is None:
            return await _ranges(cluster, partitions, committed=committed)
        return await _at(cluster, partitions, at, committed=committed)

    rows = run(connection, fetch)
    if as_json:
        show_json(rows)
    elif at is None:
        shown = [(*row.values(), row["latest"] - row["earliest"]) for row in rows]
        show_table(("topic", "partition", "earliest", "latest", "records"), shown)
    else:
        columns = ("topic", "partition", "offset", "time", "leader epoch")
        show_table(columns, [_shown(row) for row in rows])


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    time = row["timestamp"]
    shown_time = None if time is None else time_text(time)
    return row["topic"], row["partition"], row["offset"], shown_time, row["leaderEpoch"]


async def _chosen(
    cluster: "Cluster", topics: list[str], *, internal: bool
) -> list["TopicPartition"]:
    names, partitions = parse_partitions(topics)
    described = await cluster.topics([*names, *(partition.topic for partition in partitions)])
    for partition in partitions:
        # Raises if the topic does not have it.
        described[partition.topic].partition(partition.partition)
    chosen = [described[name] for name in names]
    if not topics:
        all_topics = (await cluster.metadata(None)).topics.values()
        chosen = [topic for topic in all_topics if internal or not topic.is_internal]
    for topic in chosen:
        partitions += topic.topic_partitions
    return sorted(set(partitions))


async def _ranges(
    cluster: "Cluster", partitions: list["TopicPartition"], *, committed: bool
) -> list[dict[str, Any]]:
    from moldau.client.admin.offsets import EARLIEST, list_offsets
    from moldau.client.start_positions import end_positions
    from moldau.protocol.enums import IsolationLevel

    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = await end_positions(cluster, partitions, IsolationLevel(committed))
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "earliest": starts[partition].offset,
            "latest": ends[partition],
        }
        for partition in partitions
    ]


async def _at(
    cluster: "Cluster", partitions: list["TopicPartition"], at: str, *, committed: bool
) -> list[dict[str, Any]]:
    from moldau.client.admin.offsets import list_offsets
    from moldau.protocol.enums import IsolationLevel, ListOffsetsTimestamp

    if at in _SPECIAL:
        time = int(ListOffsetsTimestamp[at.upper().replace("-", "_")])
    else:
        time = parse_time_ms(at)
    offsets = await list_offsets(
        cluster, dict.fromkeys(partitions, time), IsolationLevel(committed)
    )
    return [_found_json(partition, offsets[partition]) for partition in partitions]


def _found_json(partition: "TopicPartition", found: "FoundOffset") -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": found.offset if found.offset >= 0 else None,
        "timestamp": found.timestamp if found.timestamp >= 0 else None,
        "leaderEpoch": found.leader_epoch if found.leader_epoch >= 0 else None,
    }
