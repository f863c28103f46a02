"""Transactions of confluent-kafka: all of what was sent is seen, or nothing."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients.libraries import CLIENT_TIMEOUT_S
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from running_node import fresh_name
from wire_client import create_topic

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

MakeProducer = Callable[..., Any]


@pytest.fixture
def transactional(address: str) -> Iterator[MakeProducer]:
    """Makes producers that may begin."""
    made = []

    def make(transactional_id: str | None = None, **settings: Any) -> Any:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        base = {"bootstrap.servers": address, "log_level": 0, "linger.ms": 0}
        base["transactional.id"] = transactional_id or fresh_name("transactional")
        producer = Producer(base | config)
        producer.init_transactions(CLIENT_TIMEOUT_S)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.purge()


def read(
    address: str, topic: str, *, isolation: str = READ_COMMITTED, partitions: int = 1
) -> list[bytes]:
    """All that there is to be seen, up to the end that the reader is told."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": fresh_name("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    try:
        consumer.assign([ConfluentPartition(topic, index, 0) for index in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, (values, ended)
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    finally:
        consumer.close()
    return values


def send(producer: Any, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    producer = transactional()
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
        producer.begin_transaction()
        send(producer, topic, *(b"%d-%d" % (number, place) for place in range(4)))
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        ends(CLIENT_TIMEOUT_S)
    every = [b"%d-%d" % (number, place) for number in range(6) for place in range(4)]
    committed = [value for value in every if int(value[:1]) % 2 == 0]
    assert read(address, topic) == committed
    assert read(address, topic, isolation=READ_UNCOMMITTED) == every


def test_nothing_behind_an_open_transaction_is_seen_before_it_ends(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    first, second = transactional(), transactional()
    first.begin_transaction()
    send(first, topic, b"first")
    first.flush(CLIENT_TIMEOUT_S)
    second.begin_transaction()
    send(second, topic, b"second")
    second.commit_transaction(CLIENT_TIMEOUT_S)
    assert read(address, topic) == []
    assert read(address, topic, isolation=READ_UNCOMMITTED) == [b"first", b"second"]
    first.commit_transaction(CLIENT_TIMEOUT_S)
    assert read(address, topic) == [b"first", b"second"]


def test_a_reader_that_waits_is_woken_by_the_commit(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    producer = transactional()
    reader: Any = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": fresh_name("reader"),
            "isolation.level": READ_COMMITTED,
            "fetch.wait.max.ms": int(CLIENT_TIMEOUT_S * 1000),
            "socket.timeout.ms": int(CLIENT_TIMEOUT_S * 2000),
            "log_level": 0,
        }
    )
    try:
        reader.assign([ConfluentPartition(topic, 0, 0)])
        producer.begin_transaction()
        send(producer, topic, b"late")
        producer.flush(CLIENT_TIMEOUT_S)
        assert reader.poll(0.5) is None
        producer.commit_transaction(CLIENT_TIMEOUT_S)
        message = reader.poll(CLIENT_TIMEOUT_S / 2)
        assert message is not None
        assert message.value() == b"late"
    finally:
        reader.close()


def test_a_transaction_over_many_partitions_is_seen_as_one(
    address: str, transactional: MakeProducer
) -> None:
    topics = [fresh_name("wide") for _ in range(2)]
    for name in topics:
        create_topic(address, name, partitions=8)
    producer = transactional()
    for ends in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for name in topics:
            for index in range(8):
                send(producer, name, b"%d" % index, partition=index)
        producer.flush(CLIENT_TIMEOUT_S)
        assert all(read(address, name, partitions=8) == [] for name in topics)
        ends(CLIENT_TIMEOUT_S)
    for name in topics:
        assert sorted(read(address, name, partitions=8)) == [b"%d" % n for n in range(8)]


def test_the_older_of_two_producers_with_one_id_is_fenced(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    name = fresh_name("transactional")
    zombie = transactional(name)
    zombie.begin_transaction()
    send(zombie, topic, b"zombie")
    zombie.flush(CLIENT_TIMEOUT_S)
    heir = transactional(name)
    heir.begin_transaction()
    send(heir, topic, b"heir")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(CLIENT_TIMEOUT_S)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() == KafkaError._FENCED
    heir.commit_transaction(CLIENT_TIMEOUT_S)
    assert read(address, topic) == [b"heir"]


def test_offsets_and_records_are_committed_together_or_not_at_all(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    """Consume, transform, produce; the first attempt is aborted."""
    target, group = fresh_name("target"), fresh_name("group")
    create_topic(address, target)
    source = transactional()
    source.begin_transaction()
    send(source, topic, b"1", b"2", b"3")
    source.commit_transaction(CLIENT_TIMEOUT_S)
    producer = transactional()
    for attempt, ends in enumerate((producer.abort_transaction, producer.commit_transaction)):
        consumer: Any = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "isolation.level": READ_COMMITTED,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([topic])
            producer.begin_transaction()
            for message in consumer.consume(3, CLIENT_TIMEOUT_S):
                assert message.error() is None
                send(producer, target, b"%d:" % attempt + message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            ends(CLIENT_TIMEOUT_S)
            (place,) = consumer.committed([ConfluentPartition(topic, 0)], CLIENT_TIMEOUT_S)
            assert place.offset == (3 if attempt else -1001)
        finally:
            consumer.close()
    assert read(address, target) == [b"1:1", b"1:2", b"1:3"]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_large_transactions_of_every_codec_are_whole(
    address: str, topic: str, transactional: MakeProducer, codec: str
) -> None:
    producer = transactional(compression_type=codec, batch_size=300_000, linger_ms=20)
    values = [b"%04d" % number + b"v" * 2000 for number in range(400)]
    producer.begin_transaction()
    send(producer, topic, *values)
    producer.commit_transaction(CLIENT_TIMEOUT_S)
    assert read(address, topic) == values
