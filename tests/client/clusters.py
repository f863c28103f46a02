"""Short ways to a cluster and a fresh topic."""

import itertools
import os

from moldau.client.cluster import Cluster
from moldau.client.fetcher import FetchOptions
from moldau.client.producer import Producer
from moldau.client.readers import PartitionReader
from moldau.client.settings import client_settings
from moldau.client.start_positions import Place, StartAt, end_positions, start_positions
from moldau.protocol.record import Record
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


async def write(cluster: Cluster, topic: str, values: list[bytes], partition: int = 0) -> None:
    async with Producer(cluster, await cluster.topic(topic)) as producer:
        for value in values:
            await producer.send(None, value, partition=partition)


async def read_all(
    cluster: Cluster, topic: str, options: FetchOptions | None = None
) -> dict[int, list[Record]]:
    """Everything up to the end, by partition."""
    partitions = (await cluster.topic(topic)).topic_partitions
    start = await start_positions(cluster, partitions, StartAt(Place.BEGINNING))
    ends = await end_positions(cluster, partitions)
    found: dict[int, list[Record]] = {one.partition: [] for one in partitions}
    unfinished = {one for one in partitions if start[one] < ends[one]}
    async with PartitionReader(cluster, start, options or FetchOptions()) as reader:
        while unfinished:
            fetched = await reader.next(30_000)
            assert fetched is not None, f"no end of {unfinished}"
            found[fetched.partition.partition] += fetched.records()
            if fetched.next_offset >= ends[fetched.partition]:
                unfinished.discard(fetched.partition)
    return found


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]
