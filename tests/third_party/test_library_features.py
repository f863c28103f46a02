"""Features of single libraries: background commits, patterns, iterators, custom batches."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import create_topic
from third_party.confluent_library import ConfluentLibrary
from third_party.kafka_python_library import KafkaPythonLibrary, collect_what_was_left_open
from third_party.libraries import CLIENT_TIMEOUT_S, ProducerOptions, Sent

COUNT = 12


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """A topic with twelve records."""
    records = [Sent(value=b"%d" % number, partition=0) for number in range(COUNT)]
    ConfluentLibrary().produce(address, topic, records, ProducerOptions())
    return topic


# confluent-kafka


@pytest.fixture
def confluent(address: str) -> Iterator[Callable[..., Any]]:
    """Opens consumers that the test need not close."""
    opened = []

    def open_consumer(group: str, **settings: Any) -> Any:
        config = {
            name if name == "on_commit" else name.replace("_", "."): value
            for name, value in settings.items()
        }
        base = {"bootstrap.servers": address, "group.id": group, "log_level": 0}
        base |= {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
        opened.append(Consumer(base | config))
        return opened[-1]

    yield open_consumer
    for consumer in opened:
        consumer.close()


def poll_values(consumer: Any, count: int) -> list[bytes]:
    values: list[bytes] = []

    def consume() -> None:
        values.extend(one.value() for one in consumer.consume(count - len(values), 0.1))

    wait_for(lambda: len(values) >= count, lambda: f"{count} values: {values}", between=consume)
    return values


def test_confluent_commits_in_the_background(confluent: Callable[..., Any], filled: str) -> None:
    answers: list[Any] = []
    consumer = confluent(
        fresh_name("group"),
        enable_auto_commit=False,
        on_commit=lambda error, partitions: answers.append((error, partitions)),
    )
    consumer.subscribe([filled])
    poll_values(consumer, COUNT)
    consumer.commit(asynchronous=True)
    wait_for(lambda: bool(answers), "the commit", between=lambda: consumer.poll(0.05))
    ((error, (partition,)),) = answers
    assert (error, partition.offset, partition.error) == (None, COUNT, None)


def test_confluent_commits_stored_offsets_automatically(
    confluent: Callable[..., Any], filled: str
) -> None:
    group = fresh_name("group")
    first = confluent(group, enable_auto_offset_store=False)
    first.subscribe([filled])
    poll_values(first, COUNT)
    first.store_offsets(offsets=[ConfluentPartition(filled, 0, 5)])
    first.close()
    second = confluent(group)
    second.subscribe([filled])
    assert poll_values(second, 1) == [b"5"]
    assert second.memberid()


def test_confluent_follows_topics_by_their_names(
    confluent: Callable[..., Any], address: str
) -> None:
    prefix = fresh_name("pattern")
    create_topic(address, f"{prefix}.one")
    consumer = confluent(fresh_name("group"))
    consumer.subscribe([f"^{prefix}[.].*"])
    ConfluentLibrary().produce(address, f"{prefix}.one", [Sent(value=b"1")], ProducerOptions())
    assert poll_values(consumer, 1) == [b"1"]
    # A topic that is created later is included.
    create_topic(address, f"{prefix}.two")
    ConfluentLibrary().produce(address, f"{prefix}.two", [Sent(value=b"2")], ProducerOptions())
    assert poll_values(consumer, 1) == [b"2"]


def test_confluent_reports_the_end_of_a_partition(
    confluent: Callable[..., Any], filled: str
) -> None:
    consumer = confluent("no-group", enable_partition_eof=True)
    consumer.assign([ConfluentPartition(filled, 0, OFFSET_BEGINNING)])
    seen: list[Any] = []
    wait_for(
        lambda: len(seen) > COUNT,
        "all records and the end",
        between=lambda: seen.extend(consumer.consume(COUNT + 1, 0.1)),
    )
    assert [one.error() for one in seen[:COUNT]] == [None] * COUNT
    assert seen[COUNT].error().code() == KafkaError._PARTITION_EOF


def test_confluent_gets_an_error_for_a_missing_partition(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 5_000, "log_level": 0})
    failures: list[Any] = []
    producer.produce(topic, b"x", partition=77, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    assert failures[0].code() == KafkaError._UNKNOWN_PARTITION


# aiokafka


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            await work()

    asyncio.run(bounded())


def test_aiokafka_seeks_and_knows_where_the_log_ends(address: str, filled: str) -> None:
    partition = AiokafkaPartition(filled, 0)

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=fresh_name("group"), enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == COUNT
            await consumer.seek_to_beginning(partition)
            first = await consumer.getone()
            assert (first.offset, first.value) == (0, b"0")
            assert consumer.highwater(partition) == COUNT
            assert consumer.last_stable_offset(partition) in {-1, COUNT}
            await consumer.commit({partition: 8})
            await consumer.seek_to_committed(partition)
            assert (await consumer.getone()).offset == 8
            assert filled in await consumer.topics()
            assert consumer.partitions_for_topic(filled) == {0}
        finally:
            await consumer.stop()

    run(work)


def test_aiokafka_commits_automatically_and_follows_a_pattern(address: str) -> None:
    prefix, group = fresh_name("pattern"), fresh_name("group")
    create_topic(address, f"{prefix}-a")
    ConfluentLibrary().produce(
        address, f"{prefix}-a", [Sent(value=b"0"), Sent(value=b"1")], ProducerOptions()
    )

    async def next_offset() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.subscribe(pattern=f"^{prefix}-.*")
            return int((await consumer.getone()).offset)
        finally:
            await consumer.stop()

    async def work() -> None:
        assert await next_offset() == 0
        assert await next_offset() == 1

    run(work)


def test_aiokafka_sends_batches_of_its_own_making(address: str, topic: str) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        try:
            batch = producer.create_batch()
            for number in range(20):
                batch.append(key=b"key", value=b"%d" % number, timestamp=1_700_000_000_000)
            answer = await (await producer.send_batch(batch, topic, partition=0))
            assert answer.offset == 0
            assert await producer.partitions_for(topic) == {0}
        finally:
            await producer.stop()

    run(work)


# kafka-python


@pytest.fixture
def kafka_python(address: str) -> Iterator[Callable[..., Any]]:
    opened = []

    def open_consumer(*topics: str, **settings: Any) -> Any:
        settings = {"auto_offset_reset": "earliest", "metrics_enabled": False} | settings
        opened.append(KafkaConsumer(*topics, bootstrap_servers=address, **settings))
        return opened[-1]

    yield open_consumer
    while opened:
        opened.pop().close()
    collect_what_was_left_open()


def test_kafka_python_commits_in_the_background(
    kafka_python: Callable[..., Any], filled: str
) -> None:
    consumer = kafka_python(group_id=fresh_name("group"), enable_auto_commit=False)
    partition = KafkaPythonPartition(filled, 0)
    consumer.assign([partition])
    wait_for(lambda: bool(consumer.poll(timeout_ms=200)), "records")
    answered = threading.Event()
    consumer.commit_async(callback=lambda *_: answered.set())
    wait_for(lambda: consumer.poll(timeout_ms=50) is not None and answered.is_set(), "the answer")
    assert consumer.committed(partition) == consumer.position(partition)


def test_kafka_python_seeks_and_iterates(kafka_python: Callable[..., Any], filled: str) -> None:
    consumer = kafka_python(consumer_timeout_ms=CLIENT_TIMEOUT_S * 1000)
    partition = KafkaPythonPartition(filled, 0)
    consumer.assign([partition])
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == COUNT
    consumer.seek_to_beginning(partition)
    assert [next(consumer).value for _ in range(COUNT)] == [b"%d" % i for i in range(COUNT)]
    assert consumer.highwater(partition) == COUNT
    assert filled in consumer.topics()
    assert consumer.partitions_for_topic(filled) == {0}


def test_kafka_python_follows_a_pattern_and_commits_automatically(
    kafka_python: Callable[..., Any], address: str
) -> None:
    prefix, group = fresh_name("pattern"), fresh_name("group")
    create_topic(address, f"{prefix}-a")
    records = [Sent(value=b"0"), Sent(value=b"1")]
    KafkaPythonLibrary().produce(address, f"{prefix}-a", records, ProducerOptions())
    for expected in (b"0", b"1"):
        consumer = kafka_python(
            group_id=group, max_poll_records=1, consumer_timeout_ms=CLIENT_TIMEOUT_S * 1000
        )
        consumer.subscribe(pattern=f"^{prefix}-.*")
        assert next(consumer).value == expected
        consumer.close()
