"""Shorthands for a cluster and a fresh topic."""

import itertools
import os

from moldau.aio import Consumer, Producer
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import client_settings
from moldau.protocol.records.record import Record
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

_numbers = itertools.count()


def cluster_of(node: ThreadBroker, **properties: str) -> Cluster:
    """`_` in a setting's name stands for its dot."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Cluster(client_settings(node.bootstrap, named))


def fresh_topic(node: ThreadBroker, partitions: int = 1, **config: str) -> str:
    name = f"client-{os.getpid()}-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    node.create_topic(name, partitions, settings)
    return name


async def write(node: ThreadBroker, topic: str, values: list[bytes], partition: int = 0) -> None:
    async with Producer(node.bootstrap) as producer:
        await (await producer.send_many(topic, values, partition=partition))


async def read_all(
    cluster: Cluster, topic: str, isolation: str = "read_uncommitted"
) -> dict[int, list[Record]]:
    """All records up to the end, by partition."""
    partitions = (await cluster.topic(topic)).topic_partitions
    found: dict[int, list[Record]] = {one.partition: [] for one in partitions}
    bootstrap = ",".join(map(str, cluster.settings.bootstrap))
    async with Consumer(bootstrap, config={"isolation.level": isolation}) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                for one in await consumer.poll(1):
                    found[one.partition].append(
                        Record(one.offset, one.timestamp, one.key, one.value, one.headers)
                    )
    return found


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]
