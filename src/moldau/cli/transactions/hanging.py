"""`moldau transactions find-hanging` and `abort`: open transactions that no coordinator will end.
Consumers of committed records cannot read past them.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.shared.connection import Connection, run
from moldau.cli.shared.escaping import print_line
from moldau.cli.shared.output import AsJson, Yes, confirm, show_json
from moldau.cli.shared.parsing import parse_duration_ms, parse_topic
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.client.admin.transactions import PartitionProducer
    from moldau.client.cluster.cluster import Cluster

# Kafka's default of transaction.max.timeout.ms: no transaction is open for longer.
_LONGER_THAN = "15m"


def find_hanging(
    connection: Connection,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:PARTITIONS]]...",
            show_default=False,
            help="Topics or partitions to search (default: all topics).",
        ),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only partitions with a replica on this broker."),
    ] = None,
    longer_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Only transactions open for longer than this; use at least the brokers' "
            "transaction.max.timeout.ms.",
        ),
    ] = _LONGER_THAN,
    as_json: AsJson = False,
) -> None:
    """Find open transactions that no coordinator will end.

    They keep consumers of committed records waiting. `abort` ends them.

    [bold]Examples[/]

      moldau transactions find-hanging

      moldau transactions find-hanging orders --longer-than 1h

      moldau transactions find-hanging --broker 1 --json
    """
    from moldau.cli.transactions.details import chosen_partitions, producers_json, show_producers
    from moldau.client.admin.transactions import find_hanging as find

    longer_than_ms = parse_duration_ms(longer_than)

    async def search(cluster: "Cluster") -> "list[PartitionProducer]":
        partitions = await chosen_partitions(cluster, topics or (), broker)
        return await find(cluster, partitions, longer_than_ms=longer_than_ms, broker_id=broker)

    hanging = run(connection, search)
    if as_json:
        show_json(producers_json(hanging))
    else:
        show_producers(hanging)


def abort(
    connection: Connection,
    partition: Annotated[
        str,
        typer.Argument(metavar="TOPIC:PARTITION", show_default=False, help="For example orders:0."),
    ],
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, help="First offset of the transaction, as find-hanging shows it."),
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            metavar="ID:EPOCH:COORDINATOR-EPOCH",
            help="Producer of the transaction; for brokers older than 3.0, which do not report it.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Abort a hanging transaction on one partition.

    If the coordinator still knows the transaction, use force-terminate: this command would abort
    only a part of it.

    [bold]Example[/]

      moldau transactions abort orders:0 --start-offset 4711
    """
    from moldau.client.admin.transactions import abort_open, find_open

    name, numbers = parse_topic(partition)
    if numbers is None or len(numbers) != 1:
        raise typer.BadParameter("name one partition, like orders:0.")
    chosen = TopicPartition(name, numbers[0])
    if (start_offset is None) == (producer is None):
        raise typer.BadParameter("name the transaction with --start-offset or --producer.")
    named = None if producer is None else _named_producer(producer, chosen)
    confirm(f"Abort the transaction on {chosen}, {producer or f'offset {start_offset}'}?", yes=yes)

    async def work(cluster: "Cluster") -> "PartitionProducer":
        hanging = named
        if hanging is None:
            assert start_offset is not None
            hanging = await find_open(cluster, chosen, start_offset)
        await abort_open(cluster, hanging)
        return hanging

    aborted = run(connection, work)
    print_line(f"aborted the transaction of producer {aborted.producer_id} on {chosen}")


def _named_producer(text: str, partition: TopicPartition) -> "PartitionProducer":
    from moldau.client.admin.transactions import PartitionProducer

    try:
        producer_id, epoch, coordinator_epoch = (int(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a producer; write 4000:3:0.") from None
    return PartitionProducer(partition, producer_id, epoch, coordinator_epoch, -1, -1, None)
