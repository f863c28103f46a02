"""Producing: nothing is lost, doubled or out of order, whatever the broker answers first."""

import asyncio

import pytest
from client.clusters import cluster_of, fresh_topic, read_all, values, write
from kafka.partitioner.default import murmur2

from moldau.client.admin.topics import delete_topics
from moldau.client.errors import ClientError
from moldau.client.partition_writer import NO_OFFSET, BatchOutcome, ProducerOptions
from moldau.client.producer import Producer
from moldau.protocol.compression import Compression
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.testing import ThreadBroker

SMALL = ProducerOptions(batch_bytes=400, linger_ms=0)


def numbered(count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(count)]


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_what_was_sent_is_there_in_order(node: ThreadBroker, acks: int) -> None:
    name = fresh_topic(node)
    options = ProducerOptions(batch_bytes=400, linger_ms=0, acks=acks)
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name), options) as producer:
            for value in numbered(500):
                await producer.send(None, value)
        found = await read_all(cluster, name)
        while acks == 0 and len(found[0]) < 500:
            # Nobody said that it had arrived.
            found = await read_all(cluster, name)
    assert values(found[0]) == numbered(500)


@pytest.mark.parametrize("codec", list(Compression))
async def test_every_codec_round_trips(node: ThreadBroker, codec: Compression) -> None:
    name = fresh_topic(node)
    headers = (("name", b"content"), ("empty", b""), ("null", None))
    async with cluster_of(node) as cluster:
        topic = await cluster.topic(name)
        async with Producer(cluster, topic, ProducerOptions(compression=codec)) as producer:
            await producer.send(
                b"key", b"value" * 100, headers=headers, timestamp=1_700_000_000_000
            )
            await producer.send(None, None)
            await producer.send(b"", b"")
        first, second, third = (await read_all(cluster, name))[0]
    assert (first.key, first.value, first.headers) == (b"key", b"value" * 100, headers)
    assert first.timestamp == 1_700_000_000_000
    assert (second.key, second.value) == (None, None)
    assert (third.key, third.value) == (b"", b"")


async def test_keys_choose_the_partition_that_other_clients_choose(node: ThreadBroker) -> None:
    name = fresh_topic(node, 5)
    keys = [b"key %d" % number for number in range(100)]
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name)) as producer:
            for key in keys:
                await producer.send(key, b"")
        found = await read_all(cluster, name)
    for partition, records in found.items():
        expected = [key for key in keys if (murmur2(key) & 0x7FFF_FFFF) % 5 == partition]
        assert [record.key for record in records] == expected


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"]
)
async def test_errors_that_pass_lose_and_double_nothing(node: ThreadBroker, error: str) -> None:
    name = fresh_topic(node, 2)
    node.fail_next("Produce", error, times=5)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        async with Producer(cluster, await cluster.topic(name), SMALL) as producer:
            for value in numbered(300):
                await producer.send(None, value, partition=len(value) % 2)
        found = await read_all(cluster, name)
    for partition in (0, 1):
        assert values(found[partition]) == [v for v in numbered(300) if len(v) % 2 == partition]


async def test_lost_connections_lose_and_double_nothing(node: ThreadBroker) -> None:
    """An answer that is lost on the way is asked for again; the broker knows the batch."""
    name = fresh_topic(node)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        async with Producer(cluster, await cluster.topic(name), SMALL) as producer:
            for number, value in enumerate(numbered(400)):
                await producer.send(None, value)
                if number % 40 == 0:
                    await asyncio.to_thread(node.drop_connections)
        found = await read_all(cluster, name)
    assert values(found[0]) == numbered(400)


async def test_a_batch_too_large_for_the_topic_is_split(node: ThreadBroker) -> None:
    name = fresh_topic(node, max_message_bytes="300")
    async with cluster_of(node) as cluster:
        await write(cluster, name, numbered(200))
        assert values((await read_all(cluster, name))[0]) == numbered(200)


async def test_a_record_too_large_for_the_topic_fails_alone(node: ThreadBroker) -> None:
    name = fresh_topic(node, max_message_bytes="300")
    outcomes: list[BatchOutcome] = []
    async with cluster_of(node) as cluster:
        async with Producer(
            cluster, await cluster.topic(name), on_done=outcomes.append
        ) as producer:
            for value in [b"small", b"x" * 1000, b"small too"]:
                await producer.send(None, value)
        found = await read_all(cluster, name)
    assert values(found[0]) == [b"small", b"small too"]
    (error,) = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_the_first_error_reaches_who_does_not_listen(node: ThreadBroker) -> None:
    name = fresh_topic(node, cleanup_policy="compact")
    async with cluster_of(node) as cluster:
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await write(cluster, name, [b"a compacted topic wants keys"])


async def test_a_deleted_topic_ends_the_sending(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        topic = await cluster.topic(name)
        await delete_topics(cluster, [name])
        with pytest.raises(MoldauError):
            async with Producer(cluster, topic) as producer:
                await producer.send(None, b"too late")


async def test_a_partition_that_is_not_there_is_refused(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name)) as producer:
            with pytest.raises(ClientError, match="has no partition 7"):
                await producer.send(None, b"", partition=7)
            await producer.send(None, b"fine")
        assert values((await read_all(cluster, name))[0]) == [b"fine"]


async def test_memory_is_bounded_while_the_broker_is_slow(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    node.delay("Produce", 20)
    options = ProducerOptions(batch_bytes=1000, buffer_bytes=4000, linger_ms=0)
    waited = 0
    async with cluster_of(node) as cluster:
        async with Producer(cluster, await cluster.topic(name), options) as producer:
            for _ in range(100):
                while not producer.offer(None, b"x" * 400):
                    waited += 1
                    await producer.wait_for_room()
            # A record that is larger than all room still goes.
            while not producer.offer(None, b"y" * 9000):
                await producer.wait_for_room()
        found = await read_all(cluster, name)
    assert waited > 10
    assert len(found[0]) == 101


async def test_outcomes_tell_where_batches_are(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    outcomes: list[BatchOutcome] = []
    async with cluster_of(node) as cluster:
        topic = await cluster.topic(name)
        for _ in range(3):
            async with Producer(cluster, topic, on_done=outcomes.append) as producer:
                for value in numbered(10):
                    await producer.send(None, value)
    assert [outcome.base_offset for outcome in outcomes] == [0, 10, 20]
    assert NO_OFFSET not in {outcome.base_offset for outcome in outcomes}
