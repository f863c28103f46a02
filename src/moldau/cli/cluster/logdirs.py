"""`moldau logdirs`: the log directories of brokers and the sizes of their replicas."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
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
            help="Show only replicas of these topics.",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2", help="Show only these brokers.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", "-i", help="Include internal topics.")
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
        chosen = sorted(known) if brokers is None else parse_numbers(brokers)
        for node_id in chosen:
            if node_id not in known:
                raise ClientError(f"broker {node_id} does not exist")
        await cluster.topics(topics or ())
        directories = await describe_log_dirs(cluster, chosen)
        if topics or internal:
            return directories, _Shown(topics=frozenset(topics or ()))
        known_topics = (await cluster.metadata(None)).topics.values()
        hidden = frozenset(topic.name for topic in known_topics if topic.is_internal)
        return directories, _Shown(hidden=hidden)

    directories, shown = run(connection, fetch)
    if as_json:
        show_json([_directory_json(directory, shown) for directory in directories])
        return
    for directory in directories:
        rows = [
            (replica.partition.topic, replica.partition.partition, bytes_text(replica.size_bytes),
             replica.offset_lag, "future" if replica.is_future else "")
            for replica in shown.replicas(directory)
        ]  # fmt: skip
        title = _headline(directory, shown)
        show_table(("topic", "partition", "size", "lag", "kind"), rows, title=title)
        print_line()


class _Shown(NamedTuple):
    """The filter for replicas."""

    topics: frozenset[str] = frozenset()
    """Empty: all topics."""
    hidden: frozenset[str] = frozenset()

    def replicas(self, directory: "LogDirectory") -> "list[Replica]":
        return [
            replica
            for replica in directory.replicas
            if replica.partition.topic not in self.hidden
            and (not self.topics or replica.partition.topic in self.topics)
        ]


def _headline(directory: "LogDirectory", shown: _Shown) -> str:
    total = sum(replica.size_bytes for replica in shown.replicas(directory))
    parts = [f"broker {directory.node_id}, {directory.path}: {bytes_text(total)} in replicas"]
    if directory.usable_bytes >= 0:
        free, whole = bytes_text(directory.usable_bytes), bytes_text(directory.total_bytes)
        parts.append(f"{free} of {whole} free")
    internal = sum(replica.partition.topic in shown.hidden for replica in directory.replicas)
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
                "topic": replica.partition.topic,
                "partition": replica.partition.partition,
                "sizeBytes": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "future": replica.is_future,
            }
            for replica in shown.replicas(directory)
        ],
    }
