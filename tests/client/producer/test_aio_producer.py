"""The asyncio producer: as the blocking one, in the user's event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, numbered, values_of

from moldau.aio import Producer
from moldau.errors import ClientError, ClientTimeoutError, ClosedError, KafkaError
from moldau.testing import ThreadBroker


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """Fails if a task outlives the work."""

    async def supervised() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            result = await work()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []
        return result

    return asyncio.run(supervised())


def test_deliveries_are_awaited(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(node.bootstrap) as producer:
            first = await producer.send(topic, b"a", b"k", timestamp=5)
            with pytest.raises(ClientError, match="await the delivery"):
                first.result()
            assert await first == (topic, 0, 0, 5)
            deliveries = [await producer.send(topic, value) for value in numbered(1_000)]
            many = await producer.send_many(topic, numbered(10_000, 1_000))
            assert [one.offset for one in await asyncio.gather(*deliveries)] == list(
                range(1, 1_001)
            )
            assert sum(one.records for one in await many) == 10_000
            assert await producer.partitions_for(topic) == [0]

    run(work)
    assert values_of(node, topic) == [b"a", *numbered(11_000)]


def test_leaving_the_block_sends_everything(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(node.bootstrap, linger_ms=10_000) as producer:
            for value in numbered(2_000):
                _ = await producer.send(topic, value)

    run(work)
    assert values_of(node, topic) == numbered(2_000)


def test_a_table_is_sent(node: ThreadBroker) -> None:
    import pyarrow as pa

    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(node.bootstrap) as producer:
            table = pa.table({"value": numbered(3_000)})
            await (await producer.send_table(topic, table))

    run(work)
    assert values_of(node, topic) == numbered(3_000)


def test_awaiting_raises_the_error(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(node.bootstrap) as producer:
            await (await producer.send(topic, b"before"))
            node.fail_next("Produce", "INVALID_REQUIRED_ACKS", 1)
            delivery = await producer.send(topic, b"refused")
            with pytest.raises(KafkaError, match="INVALID_REQUIRED_ACKS"):
                await delivery
            await (await producer.send(topic, b"after"))

    run(work)
    assert values_of(node, topic) == [b"before", b"after"]


def test_a_full_buffer_holds_back_without_blocking_the_loop(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(
            node.bootstrap, buffer_memory=40_000, max_block_ms=300, batch_size=1_000
        ) as producer:
            await (await producer.send(topic, b"first"))
            node.delay("Produce", 2_000, 1)

            async def fill() -> None:
                for value in numbered(5_000):
                    _ = await producer.send(topic, value * 10)

            with pytest.raises(ClientTimeoutError, match="no room"):
                await fill()
            await producer.flush(PATIENCE_S)

    run(work)


def test_slow_brokers_hold_senders_back_and_lose_nothing(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        async with Producer(node.bootstrap, buffer_memory=100_000, batch_size=500) as producer:
            node.delay("Produce", 5, 30)
            for value in numbered(20_000):
                _ = await producer.send(topic, value)

    run(work)
    assert values_of(node, topic) == numbered(20_000)


def test_misuse_is_an_error(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        producer = Producer(node.bootstrap)
        with pytest.raises(ClientError, match="must be bytes"):
            _ = await producer.send(topic, "text")
        await producer.close()
        await producer.close()
        with pytest.raises(ClosedError):
            _ = await producer.send(topic, b"")
        with pytest.raises(ClosedError):
            await producer.flush()

    run(work)


def test_one_event_loop_owns_it(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = Producer(node.bootstrap)

    async def use() -> None:
        await (await producer.send(topic, b"v"))

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(use())
        with pytest.raises(ClientError, match="one event loop"):
            asyncio.run(producer.flush())
        loop.run_until_complete(producer.close())
    finally:
        loop.close()


def test_closing_with_a_short_timeout_fails_unsent_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    async def work() -> None:
        producer = Producer(node.bootstrap)
        await (await producer.send(topic, b"first"))
        node.delay("Produce", 5_000, 1)
        left = await producer.send(topic, b"left")
        await producer.close(timeout=0.1)
        with pytest.raises(KafkaError, match="closed"):
            await left

    run(work)
