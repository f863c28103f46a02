"""Transactions of confluent-kafka beyond the common cases: waiting readers, big batches."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from support.running_node import fresh_name
from third_party.confluent_library import ConfluentLibrary
from third_party.libraries import CLIENT_TIMEOUT_S, CODECS, ConsumerOptions
from third_party.reading import opened, read_count

from moldau.types import TopicPartition

MakeProducer = Callable[..., Any]


@pytest.fixture
def transactional(address: str) -> Iterator[MakeProducer]:
    """Makes producers that have initialised their transactions."""
    made = []

    def make(**settings: Any) -> Any:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        base = {"bootstrap.servers": address, "log_level": 0, "linger.ms": 0}
        base["transactional.id"] = fresh_name("transactional")
        producer = Producer(base | config)
        producer.init_transactions(CLIENT_TIMEOUT_S)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.purge()


def test_a_commit_wakes_a_waiting_reader(
    address: str, topic: str, transactional: MakeProducer
) -> None:
    producer = transactional()
    reader: Any = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": fresh_name("reader"),
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": int(CLIENT_TIMEOUT_S * 1000),
            "socket.timeout.ms": int(CLIENT_TIMEOUT_S * 2000),
            "log_level": 0,
        }
    )
    try:
        reader.assign([ConfluentPartition(topic, 0, 0)])
        producer.begin_transaction()
        producer.produce(topic, b"late", partition=0)
        producer.flush(CLIENT_TIMEOUT_S)
        assert reader.poll(0.5) is None
        producer.commit_transaction(CLIENT_TIMEOUT_S)
        message = reader.poll(CLIENT_TIMEOUT_S / 2)
        assert message is not None
        assert message.value() == b"late"
    finally:
        reader.close()


@pytest.mark.parametrize("codec", CODECS)
def test_large_transactions_of_every_codec_are_whole(
    address: str, topic: str, transactional: MakeProducer, codec: str
) -> None:
    producer = transactional(compression_type=codec, batch_size=300_000, linger_ms=20)
    values = [b"%04d" % number + b"v" * 2000 for number in range(400)]
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.commit_transaction(CLIENT_TIMEOUT_S)
    options = ConsumerOptions(reads_committed_only=True)
    with opened(ConfluentLibrary(), address, options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read_count(consumer, len(values))] == values
