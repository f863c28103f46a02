"""The consumer for asyncio: same names and behaviour; callbacks may be coroutines."""

import asyncio
from typing import Any

import pytest
from client.consumed import fresh_name, fresh_topic, produce

from moldau.aio import Consumer
from moldau.client.consumer.errors import WakeupError
from moldau.client.errors import ClientError, ClosedError
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition


def consumer_of(node: ThreadBroker, **settings: Any) -> Consumer:
    chosen = {"group_id": fresh_name("group"), "auto_offset_reset": "earliest"}
    return Consumer(node.bootstrap, **(chosen | settings))


async def test_records_are_iterated_singly(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(200)])
    found = []
    async with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        async for record in consumer:
            found.append(int(record.value))
            if len(found) == 200:
                break
        await consumer.commit()
        committed = await consumer.committed(consumer.assignment())
        # The last record was not processed when the loop ended.
        assert sum(at.offset for at in committed.values() if at) == 199
    assert sorted(found) == list(range(200))


async def test_batches_and_positions(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(25)], 0)
    place = TopicPartition(topic, 0)
    async with consumer_of(node) as consumer:
        consumer.assign([place])
        sizes = []
        async for records in consumer.batches(max_records=10):
            sizes.append(len(records))
            if sum(sizes) == 25:
                break
        assert max(sizes) <= 10
        assert await consumer.position(place) == 25
        assert consumer.lag(place) == 0
        consumer.seek(place, 20)
        assert [one.offset for one in await consumer.poll(10)] == [20, 21, 22, 23, 24]
        assert await consumer.end_offsets([place]) == {place: 25}
        assert await consumer.partitions_for(topic) == [place]


async def test_a_seek_drops_the_response_to_a_fetch_from_before_it(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    for start in (0, 10):
        produce(node.bootstrap, topic, [b"%d" % i for i in range(start, start + 10)], 0)
    place = TopicPartition(topic, 0)
    async with consumer_of(node) as consumer:
        consumer.assign([place])
        consumer.pause(place)
        await consumer.position(place)
        consumer.seek(place, 15)
        consumer.resume(place)  # Begins to fetch from there.
        consumer.seek(place, 2)
        assert (await consumer.poll(30))[0].value == b"2"


async def test_listeners_may_be_coroutines(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    calls = []
    async with consumer_of(node) as consumer:

        class Listener:
            async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                await asyncio.sleep(0)
                calls.append(("assigned", len(partitions)))
                consumer.seek(partitions[0], 1)

            async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
                await consumer.commit()
                calls.append(("revoked", len(partitions)))

        consumer.subscribe(topic, listener=Listener())
        assert [one.value for one in await consumer.poll(30)] == [b"b"]
    assert calls == [("assigned", 1), ("revoked", 1)]


async def test_two_polls_at_once_are_an_error(node: ThreadBroker) -> None:
    async with consumer_of(node) as consumer:
        consumer.assign([(fresh_topic(node), 0)])

        async def second() -> None:
            with pytest.raises(ClientError, match="another poll"):
                await consumer.poll(1)
            consumer.wakeup()

        outcomes = await asyncio.gather(consumer.poll(60), second(), return_exceptions=True)
        assert [type(one) for one in outcomes] == [WakeupError, type(None)]


async def test_a_poll_can_be_cancelled(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await consumer.poll(60)
        produce(node.bootstrap, topic, [b"a"], 0)
        assert [one.value for one in await consumer.poll(30)] == [b"a"]
    with pytest.raises(ClosedError):
        await consumer.poll(1)


async def test_tables_have_what_the_records_have(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(3000)], compression_type="lz4")
    async with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        rows: list[dict[str, Any]] = []
        async for table in consumer.arrow():
            rows += table.to_pylist()
            if len(rows) == 3000:
                break
        ends = await consumer.end_offsets(consumer.assignment())
        assert {one: await consumer.position(one) for one in ends} == ends
        consumer.seek_to_beginning()
        only = await consumer.fetch_arrow(30, columns=["value"])
        assert only.schema.names == ["value"]
        consumer.seek_to_end()
        assert (await consumer.fetch_arrow(0.2)).num_rows == 0
        with pytest.raises(ClientError, match="unknown column valu;"):
            await consumer.fetch_arrow(1, columns=["valu"])
    assert sorted(int(row["value"]) for row in rows) == list(range(3000))
    assert all(row["key"] == row["value"] and row["topic"] == topic for row in rows)


async def test_a_table_begins_where_records_ended(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(100)], 0)
    async with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        assert [one.offset for one in await consumer.poll(30, 30)] == list(range(30))
        table = await consumer.fetch_arrow(30)
        assert table["offset"].to_pylist() == list(range(30, 100))


async def test_polling_without_waiting_gets_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    async with consumer_of(node) as consumer, asyncio.timeout(60):
        consumer.subscribe(topic)
        while not (records := await consumer.poll(0)):
            pass
        assert [one.value for one in records] == [b"a"]
