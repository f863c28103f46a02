"""`moldau logdirs`: what lies on the brokers' disks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.completion import complete_topics
from moldau.cli.connection import Connection, connected, run
from moldau.cli.output import AsJson, bytes_text, show_json, show_table
from moldau.cli.parsing import parse_numbers

if TYPE_CHECKING:
    from moldau.client.admin.log_dirs import LogDirectory
    from moldau.client.cluster import Cluster


@connected
def logdirs(
    connection: Connection,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Only replicas of these topics.",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2", help="Only of these brokers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show log directories with the sizes of their replicas.

    [bold]Examples[/]

      moldau logdirs

      moldau logdirs orders --brokers 1 --json
    """
    from moldau.client.admin.log_dirs import describe_log_dirs
    from moldau.client.errors import ClientError

    async def fetch(cluster: "Cluster") -> list["LogDirectory"]:
        known = await cluster.brokers()
        wanted = sorted(known) if brokers is None else parse_numbers(brokers)
        for node_id in wanted:
            if node_id not in known:
                raise ClientError(f"there is no broker {node_id}")
        await cluster.topics(topics or ())
        return await describe_log_dirs(cluster, wanted)

    found = run(connection, fetch)
    if as_json:
        show_json([_directory_json(one, topics) for one in found])
        return
    for directory in found:
        rows = [
            (one.partition.topic, one.partition.partition, bytes_text(one.size_bytes),
             one.offset_lag, "future" if one.is_future else "")
            for one in directory.replicas
            if not topics or one.partition.topic in topics
        ]  # fmt: skip
        show_table(("topic", "partition", "size", "lag", "kind"), rows, title=_headline(directory))
        typer.echo("")


def _headline(directory: "LogDirectory") -> str:
    total = sum(one.size_bytes for one in directory.replicas)
    parts = [f"broker {directory.node_id}, {directory.path}: {bytes_text(total)} in replicas"]
    if directory.usable_bytes >= 0:
        free, whole = bytes_text(directory.usable_bytes), bytes_text(directory.total_bytes)
        parts.append(f"{free} of {whole} free")
    if directory.error:
        parts.append(directory.error.name)
    return ", ".join(parts)


def _directory_json(directory: "LogDirectory", topics: list[str] | None) -> dict[str, Any]:
    return {
        "brokerId": directory.node_id,
        "path": directory.path,
        "error": directory.error.name if directory.error else None,
        "totalBytes": directory.total_bytes if directory.total_bytes >= 0 else None,
        "usableBytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
        "replicas": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "sizeBytes": one.size_bytes,
                "offsetLag": one.offset_lag,
                "future": one.is_future,
            }
            for one in directory.replicas
            if not topics or one.partition.topic in topics
        ],
    }
