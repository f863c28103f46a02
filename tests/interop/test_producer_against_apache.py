"""Our producer on Apache Kafka 4.3.1: what holds on Moldau holds there too."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from client.produced import PATIENCE_S, numbered
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker
from running_node import fresh_name

from moldau import Producer
from moldau.aio import Producer as AioProducer
from moldau.errors import ErrorCode, KafkaError, MustAbortError, MustStopError
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as running:
        running.format()
        running.start()
        yield running


def values(node: LiveBroker, topic: str, partitions: int = 1) -> dict[int, list[bytes | None]]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    served = node.read(places, committed=True)
    return {place.partition: [row.value for row in served[place]] for place in places}


def fresh_topic(node: LiveBroker, partitions: int = 1, /, **settings: str) -> str:
    name = fresh_name("producer")
    node.create_topic(name, partitions, **settings)
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_taken(node: LiveBroker, codec: str) -> None:
    topic = fresh_topic(node)
    with Producer(node.address, compression_type=codec) as producer:
        producer.send_many(topic, numbered(3_000)).result(PATIENCE_S)
        one = producer.send(topic, b"last", b"key", headers=[("h", b"1")]).result(PATIENCE_S)
        assert one.offset == 3_000
    assert values(node, topic)[0] == [*numbered(3_000), b"last"]


def test_keys_go_where_librdkafka_and_java_send_them(node: LiveBroker) -> None:
    topic = fresh_topic(node, 5)
    keys = [b"key-%d" % number for number in range(50)]
    peer = node.producer(partitioner="murmur2_random")
    for key in keys:
        peer.produce(topic, key, key)
    peer.flush(PATIENCE_S)
    theirs = values(node, topic, 5)
    with Producer(node.address) as producer:
        for key in keys:
            producer.send(topic, key, key)
    both = values(node, topic, 5)
    assert both == {number: rows * 2 for number, rows in theirs.items()}


def test_tables_and_asyncio(node: LiveBroker) -> None:
    import pyarrow as pa

    topic = fresh_topic(node)

    async def work() -> None:
        async with AioProducer(node.address) as producer:
            await (await producer.send_table(topic, pa.table({"value": numbered(5_000)})))
            await (await producer.send(topic, b"last"))

    asyncio.run(work())
    assert values(node, topic)[0] == [*numbered(5_000), b"last"]


def test_too_large_batches_are_split(node: LiveBroker) -> None:
    topic = fresh_topic(node, 1, **{"max.message.bytes": "3000"})
    with Producer(node.address, batch_size=50_000, linger_ms=100) as producer:
        producer.partitions_for(topic)
        producer.send_many(topic, [value * 20 for value in numbered(200)]).result(PATIENCE_S)
        assert producer.metrics()["batches_split"] > 0
        with pytest.raises(KafkaError) as caught:
            producer.send(topic, bytes(5_000)).result(PATIENCE_S)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert values(node, topic)[0] == [value * 20 for value in numbered(200)]


def test_transactions(node: LiveBroker) -> None:
    topic = fresh_topic(node, 2)
    small = fresh_topic(node, 1, **{"max.message.bytes": "1000"})
    with Producer(node.address, transactional_id=fresh_name("tx")) as producer:
        with producer.transaction():
            producer.send(topic, b"one", partition=0)
            producer.send_offsets({TopicPartition(topic, 0): 1}, fresh_name("group"))
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0).result(PATIENCE_S)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(small, bytes(5_000))
        with pytest.raises(MustAbortError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"two", partition=1)
    assert values(node, topic, 2) == {0: [b"one"], 1: [b"two"]}


def test_a_second_producer_fences_the_first(node: LiveBroker) -> None:
    topic = fresh_topic(node)
    name = fresh_name("tx")
    with (
        Producer(node.address, transactional_id=name) as first,
        Producer(node.address, transactional_id=name) as second,
    ):
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"first").result(PATIENCE_S)
        second.init_transactions()
        with pytest.raises(MustStopError):
            first.commit_transaction()
        with second.transaction():
            second.send(topic, b"second")
    assert values(node, topic)[0] == [b"second"]


def test_a_killed_broker_gets_the_rest_once_and_in_order(node: LiveBroker) -> None:
    topic = fresh_topic(node, 2)
    quick: dict[str, Any] = {
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
        "retry_backoff_max_ms": 200,
    }
    with Producer(node.address, batch_size=200, linger_ms=0, **quick) as producer:
        expected = numbered(4_000)
        deliveries = []
        for number, value in enumerate(expected):
            deliveries.append(producer.send(topic, value, partition=number % 2))
            if number == 1_500:
                node.stop()
                node.start()
        producer.flush(PATIENCE_S)
        assert all(one.exception(0) is None for one in deliveries)
    assert values(node, topic, 2) == {0: expected[0::2], 1: expected[1::2]}
