"""A broker that stops and comes back costs its clients time, not records."""

import asyncio

from client.clusters import cluster_of, fresh_topic, read_all, values, write

from moldau.client.fetcher import FetchOptions
from moldau.client.group_member import GroupOptions
from moldau.client.partition_writer import ProducerOptions
from moldau.client.producer import Producer
from moldau.client.readers import GroupReader
from moldau.client.start_positions import Place, StartAt
from moldau.testing import ThreadBroker, broker

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "moldau.flush.policy": "group"}


async def test_a_producer_outlives_a_restart() -> None:
    with broker(SETTINGS) as node:
        assert isinstance(node, ThreadBroker)
        topic = fresh_topic(node)
        expected = [b"%d" % number for number in range(300)]
        options = ProducerOptions(batch_bytes=300, linger_ms=0)
        async with cluster_of(node) as cluster:
            async with Producer(cluster, await cluster.topic(topic), options) as producer:
                for number, value in enumerate(expected):
                    await producer.send(None, value)
                    if number == 150:
                        await asyncio.to_thread(node.restart)
            found = await read_all(cluster, topic)
    assert values(found[0]) == expected


async def test_a_groups_reader_outlives_a_restart() -> None:
    with broker(SETTINGS) as node:
        assert isinstance(node, ThreadBroker)
        topic = fresh_topic(node)
        group = GroupOptions(group_id=topic, topics=[topic], heartbeat_ms=50)
        found: list[bytes | None] = []
        async with cluster_of(node) as cluster:
            await write(cluster, topic, [b"before"])
            reading = GroupReader(cluster, group, StartAt(Place.BEGINNING), FetchOptions())
            async with reading as reader, asyncio.timeout(120):
                while len(found) < 2:
                    fetched = await reader.next(50)
                    if fetched is not None:
                        found += values(list(fetched.records()))
                        await reader.consumed(fetched.partition, fetched.next_offset)
                        if len(found) == 1:
                            await asyncio.to_thread(node.restart)
                            await write(cluster, topic, [b"after"])
    assert found == [b"before", b"after"]
