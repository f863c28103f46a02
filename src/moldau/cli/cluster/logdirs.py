"""`moldau logdirs`: what lies on the brokers' disks."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import tell
from moldau.cli.shared.output import AsJson, bytes_text, show_json, show_table
from moldau.cli.shared.parsing import parse_numbers

if TYPE_CHECKING:
    from moldau.client.admin.log_dirs import LogDirectory, Replica
    from moldau.client.cluster.cluster import Cluster


@connected
def logdirs(
    connection: Connection,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC...",
            help="Only replicas of these topics.",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2", help="Only of these brokers.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", "-i", help="Also topics that brokers keep for themselves.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show log directories with the sizes of their replicas.

    [bold]Examples[/]

      moldau logdirs

      moldau logdirs --internal

      moldau logdirs orders --brokers 1 --json
    """
    from moldau.client.admin.log_dirs import describe_log_dirs
    from moldau.client.errors import ClientError

    async def fetch(cluster: "Cluster") -> "tuple[list[LogDirectory], _Shown]":
        known = await cluster.brokers()
        wanted = sorted(known) if brokers is None else parse_numbers(brokers)
        for node_id in wanted:
            if node_id not in known:
                raise ClientError(f"there is no broker {node_id}")
        await cluster.topics(topics or ())
        found = await describe_log_dirs(cluster, wanted)
        if topics or internal:
            return found, _Shown(topics=frozenset(topics or ()))
        known_topics = (await cluster.metadata(None)).topics.values()
        hidden = frozenset(one.name for one in known_topics if one.is_internal)
        return found, _Shown(hidden=hidden)

    found, shown = run(connection, fetch)
    if as_json:
        show_json([_directory_json(one, shown) for one in found])
        return
    for directory in found:
        rows = [
            (one.partition.topic, one.partition.partition, bytes_text(one.size_bytes),
             one.offset_lag, "future" if one.is_future else "")
            for one in shown.replicas(directory)
        ]  # fmt: skip
        title = _headline(directory, shown)
        show_table(("topic", "partition", "size", "lag", "kind"), rows, title=title)
        tell()


class _Shown(NamedTuple):
    """Which replicas are shown."""

    topics: frozenset[str] = frozenset()
    """All if there are none."""
    hidden: frozenset[str] = frozenset()

    def replicas(self, directory: "LogDirectory") -> "list[Replica]":
        return [
            one
            for one in directory.replicas
            if one.partition.topic not in self.hidden
            and (not self.topics or one.partition.topic in self.topics)
        ]


def _headline(directory: "LogDirectory", shown: _Shown) -> str:
    total = sum(one.size_bytes for one in shown.replicas(directory))
    parts = [f"broker {directory.node_id}, {directory.path}: {bytes_text(total)} in replicas"]
    if directory.usable_bytes >= 0:
        free, whole = bytes_text(directory.usable_bytes), bytes_text(directory.total_bytes)
        parts.append(f"{free} of {whole} free")
    internal = sum(one.partition.topic in shown.hidden for one in directory.replicas)
    if internal:
        parts.append(f"{internal} of internal topics not shown")
    if directory.error:
        parts.append(directory.error.name)
    return ", ".join(parts)


def _directory_json(directory: "LogDirectory", shown: _Shown) -> dict[str, Any]:
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
            for one in shown.replicas(directory)
        ],
    }
