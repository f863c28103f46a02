"""Our producer with Kafka 2.1.1: sequences, codecs and transactions in the forms that it
supports.
"""

from collections.abc import Iterator

import pytest
from client.produced import PATIENCE_S, numbered
from confluent_kafka import Consumer
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.old_broker import old_broker
from support.running_node import fresh_name

from moldau import Producer
from moldau.errors import MustStopError
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with old_broker(CACHE, tmp_path_factory.mktemp("old")) as address:
            yield address
    except ApacheUnavailableError as reason:
        give_up(reason)


def committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("group"),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        found: list[bytes | None] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_accepted(bootstrap: str, codec: str) -> None:
    topic = fresh_name("topic")
    with Producer(bootstrap, config={"compression.type": codec, "batch.size": 1_000}) as producer:
        producer.send_many(topic, numbered(2_000)).result(PATIENCE_S)
        last = producer.send(topic, b"last", b"key", headers={"h": b"1"}).result(PATIENCE_S)
    assert last.offset == 2_000
    assert committed(bootstrap, topic, 2_001) == [*numbered(2_000), b"last"]


def test_transactions_in_the_first_protocol(bootstrap: str) -> None:
    topic = fresh_name("topic")
    name = fresh_name("tx")
    with Producer(bootstrap, transactional_id=name) as producer:
        producer.partitions_for(topic)
        with producer.transaction():
            producer.send(topic, b"one")
            producer.send_offsets({TopicPartition(topic, 0): 1}, fresh_name("group"))
        producer.begin_transaction()
        producer.send(topic, b"aborted").result(PATIENCE_S)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"two")
        with Producer(bootstrap, transactional_id=name) as second:
            second.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"fenced")
            with pytest.raises(MustStopError):
                producer.commit_transaction()
            with second.transaction():
                second.send(topic, b"three")
    assert committed(bootstrap, topic, 3) == [b"one", b"two", b"three"]
