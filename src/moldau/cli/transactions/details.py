"""What the commands of `moldau transactions` share: partitions to look at, rows to show."""

from collections.abc import Iterable
from typing import Any

from moldau.cli.shared.output import show_table
from moldau.cli.shared.parsing import parse_partitions, time_text
from moldau.client.admin.transactions import ListedTransaction, PartitionProducer, Transaction
from moldau.client.cluster.cluster import Cluster
from moldau.types import TopicPartition


async def chosen_partitions(
    cluster: Cluster, texts: Iterable[str], broker_id: int | None = None
) -> list[TopicPartition]:
    """All that `orders` and `orders:0-3` name, or of all topics if nothing does; of one broker's
    replicas if that is given.
    """
    names, single = parse_partitions(texts)
    if names or single:
        topics = await cluster.topics([*names, *(one.topic for one in single)])
    else:
        topics = (await cluster.metadata(None)).topics
        names = list(topics)
    wanted = {one for name in names for one in topics[name].topic_partitions} | set(single)
    for one in single:
        topics[one.topic].partition(one.partition)
    return sorted(
        one
        for one in wanted
        if broker_id is None or broker_id in topics[one.topic].partition(one.partition).replicas
    )


def listed_json(one: ListedTransaction) -> dict[str, Any]:
    return {
        "transactionalId": one.transactional_id,
        "producerId": one.producer_id,
        "state": one.state,
        "coordinator": one.coordinator,
    }


def transaction_json(one: Transaction, now_ms: int) -> dict[str, Any]:
    return {
        "transactionalId": one.transactional_id,
        "coordinator": one.coordinator,
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "state": one.state,
        "timeoutMs": one.timeout_ms,
        "startTimeMs": one.start_ms,
        "durationMs": None if one.start_ms is None else now_ms - one.start_ms,
        "partitions": [{"topic": topic, "partition": number} for topic, number in one.partitions],
    }


def producers_json(producers: Iterable[PartitionProducer]) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "producerId": one.producer_id,
            "producerEpoch": one.producer_epoch,
            "coordinatorEpoch": one.coordinator_epoch,
            "lastSequence": one.last_sequence,
            "lastTimestampMs": one.last_timestamp_ms,
            "startOffset": one.start_offset,
        }
        for one in producers
    ]


def show_producers(producers: Iterable[PartitionProducer]) -> None:
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            time_text(one.last_timestamp_ms),
            one.start_offset,
        )
        for one in producers
    ]
    columns = ("topic", "partition", "producer id", "epoch", "coordinator epoch")
    show_table((*columns, "last sequence", "last time", "open since offset"), rows)
