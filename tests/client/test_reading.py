"""Reading partitions: from anywhere, whole, in order, whatever the broker answers first."""

import asyncio

import pytest
from client.clusters import cluster_of, fresh_topic, read_all, values, write

from moldau.client.admin.offsets import LATEST, delete_records
from moldau.client.admin.topics import delete_topics
from moldau.client.errors import UnknownTopicError
from moldau.client.fetcher import FetchOptions
from moldau.client.partition_writer import ProducerOptions
from moldau.client.producer import Producer
from moldau.client.readers import PartitionReader
from moldau.client.start_positions import Place, StartAt, start_positions
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition


async def test_a_read_from_the_middle_of_a_batch_begins_there(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    partition = TopicPartition(name, 0)
    async with cluster_of(node) as cluster:
        await write(cluster, name, [b"%d" % number for number in range(10)])
        async with PartitionReader(cluster, {partition: 7}, FetchOptions()) as reader:
            fetched = await reader.next(30_000)
    assert fetched is not None
    assert [record.offset for record in fetched.records()] == [7, 8, 9]
    assert (fetched.next_offset, fetched.high_watermark) == (10, 10)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (StartAt(Place.BEGINNING), 4),
        (StartAt(Place.END), 10),
        (StartAt(Place.OFFSET, 6), 6),
        (StartAt(Place.OFFSET, 2), 4),
        (StartAt(Place.OFFSET, 99), 10),
        (StartAt(Place.TAIL, 3), 7),
        (StartAt(Place.TAIL, 99), 4),
        (StartAt(Place.TIME, 1_000_000_000_500), 5),
        (StartAt(Place.TIME, 1_000_000_000_501), 6),
        (StartAt(Place.TIME, 1_000_000_009_999), 10),
    ],
)
async def test_every_way_to_begin(node: ThreadBroker, start: StartAt, offset: int) -> None:
    name = fresh_topic(node, message_timestamp_before_max_ms=str(2**62), retention_ms="-1")
    partition = TopicPartition(name, 0)
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name)) as producer:
            for number in range(10):
                await producer.send(None, b"", timestamp=1_000_000_000_000 + 100 * number)
        await delete_records(cluster, {partition: 4})
        assert await start_positions(cluster, [partition], start) == {partition: offset}


async def test_a_position_that_is_gone_is_reset_as_asked(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    partition = TopicPartition(name, 0)
    async with cluster_of(node) as cluster:
        await write(cluster, name, [b"%d" % number for number in range(10)])
        await delete_records(cluster, {partition: 4})
        async with PartitionReader(cluster, {partition: 0}, FetchOptions()) as reader:
            fetched = await reader.next(30_000)
            assert fetched is not None
            assert [record.offset for record in fetched.records()] == [4, 5, 6, 7, 8, 9]
        at_the_end = FetchOptions(out_of_range=LATEST)
        async with PartitionReader(cluster, {partition: 0}, at_the_end) as reader:
            fetched = None
            while fetched is None:
                await write(cluster, name, [b"new"])
                fetched = await reader.next(100)
            assert fetched.fetch_offset >= 10
        strict = FetchOptions(out_of_range=None)
        async with PartitionReader(cluster, {partition: 0}, strict) as reader:
            with pytest.raises(KafkaError) as caught:
                await reader.next(30_000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"])
async def test_errors_that_pass_lose_nothing(node: ThreadBroker, error: str) -> None:
    name = fresh_topic(node, 3)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        for partition in range(3):
            await write(cluster, name, [b"%d" % number for number in range(50)], partition)
        node.fail_next("Fetch", error, times=4)
        found = await read_all(cluster, name, FetchOptions(partition_bytes=100))
    assert all(values(records) == [b"%d" % n for n in range(50)] for records in found.values())


async def test_lost_connections_lose_nothing(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    small = ProducerOptions(batch_bytes=300, linger_ms=0)
    expected = [b"%d" % number for number in range(1000)]
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        async with Producer(cluster, await cluster.topic(name), small) as producer:
            for value in expected:
                await producer.send(None, value)
        found: list[bytes | None] = []
        reading = PartitionReader(
            cluster, {TopicPartition(name, 0): 0}, FetchOptions(partition_bytes=500)
        )
        async with reading as reader:
            while len(found) < len(expected):
                fetched = await reader.next(30_000)
                assert fetched is not None
                found += values(list(fetched.records()))
                await asyncio.to_thread(node.drop_connections)
    assert found == expected


async def test_what_is_not_taken_is_not_fetched_without_end(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    options = FetchOptions(partition_bytes=1000, buffer_bytes=5000)
    small = ProducerOptions(batch_bytes=1000, linger_ms=0)
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name), small) as producer:
            for _ in range(100):
                await producer.send(None, b"x" * 900)
        async with PartitionReader(cluster, {TopicPartition(name, 0): 0}, options) as reader:
            first = await reader.next(30_000)
            assert first is not None
            # The broker answers at once; only the limit holds the fetcher back.
            await write(cluster, name, [b"time passes"] * 5)
            assert reader.buffered_bytes <= options.buffer_bytes + options.partition_bytes
            taken = len(list(first.records()))
            while taken < 105:
                fetched = await reader.next(30_000)
                assert fetched is not None
                taken += len(list(fetched.records()))


async def test_a_topic_that_vanishes_ends_the_reading(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    positions = {TopicPartition(name, 0): 0}
    async with (
        cluster_of(node, retry_backoff_ms="1") as cluster,
        PartitionReader(cluster, positions, FetchOptions()) as reader,
    ):
        assert await reader.next(10) is None
        await delete_topics(cluster, [name])
        with pytest.raises(UnknownTopicError):
            await reader.next(30_000)
