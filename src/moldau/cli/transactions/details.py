"""Shared by the commands of `moldau transactions`: the chosen partitions, and rows to show."""

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
    """The partitions named by texts like `orders` and `orders:0-3`; without any, those of all
    topics. With `broker_id` only those with a replica on that broker.
    """
    names, single = parse_partitions(texts)
    if names or single:
        topics = await cluster.topics([*names, *(partition.topic for partition in single)])
    else:
        topics = (await cluster.metadata(None)).topics
        names = list(topics)
    chosen = set(single).union(*(topics[name].topic_partitions for name in names))
    # Raises if a topic does not have a partition.
    replicas = {
        partition: topics[partition.topic].partition(partition.partition).replicas
        for partition in chosen
    }
    return sorted(
        partition for partition in chosen if broker_id is None or broker_id in replicas[partition]
    )


def listed_json(transaction: ListedTransaction) -> dict[str, Any]:
    return {
        "transactionalId": transaction.transactional_id,
        "producerId": transaction.producer_id,
        "state": transaction.state,
        "coordinator": transaction.coordinator,
    }


def transaction_json(transaction: Transaction, now_ms: int) -> dict[str, Any]:
    start_ms = transaction.start_ms
    return {
        "transactionalId": transaction.transactional_id,
        "coordinator": transaction.coordinator,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "state": transaction.state,
        "timeoutMs": transaction.timeout_ms,
        "startTimeMs": start_ms,
        "durationMs": None if start_ms is None else now_ms - start_ms,
        "partitions": [
            {"topic": topic, "partition": number} for topic, number in transaction.partitions
        ],
    }


def producers_json(producers: Iterable[PartitionProducer]) -> list[dict[str, Any]]:
    return [
        {
            "topic": producer.partition.topic,
            "partition": producer.partition.partition,
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "lastSequence": producer.last_sequence,
            "lastTimestampMs": producer.last_timestamp_ms,
            "startOffset": producer.start_offset,
        }
        for producer in producers
    ]


def show_producers(producers: Iterable[PartitionProducer]) -> None:
    rows = [
        (
            producer.partition.topic,
            producer.partition.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            time_text(producer.last_timestamp_ms),
            producer.start_offset,
        )
        for producer in producers
    ]
    columns = ("topic", "partition", "producer id", "epoch", "coordinator epoch")
    show_table((*columns, "last sequence", "last time", "open since offset"), rows)
