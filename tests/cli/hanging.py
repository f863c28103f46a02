"""Transactions for tests: open ones by a real client, and hanging ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from support.waiting import wait_for
from support.wire_client import WireClient

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchBuilder, BatchOptions

TIMEOUT_S = 60.0
# The last version that adds no partition to a transaction automatically.
_PRODUCE_VERSION = 11
_NO_LEADER_YET = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
# The last version that Kafka 4.3 calls stable.
_INIT_VERSION = 5


@contextmanager
def transactional(address: str, transactional_id: str, **settings: Any) -> Iterator[Any]:
    """A producer that has initialised its transactions."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    base = {"bootstrap.servers": address, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(base | config)
    producer.init_transactions(TIMEOUT_S)
    yield producer
    producer.purge()


def write_unannounced(address: str, topic: str, partition: int, timestamp_ms: int) -> int:
    """Writes a transactional batch of a producer that no coordinator knows, as a late write would
    leave it on a broker that does not verify. Returns the producer's id.
    """
    with WireClient(address) as client:
        answer = client.ask(InitProducerIdRequest(transactional_id=None), _INIT_VERSION)
        assert answer.error_code == 0
        options = BatchOptions(
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        builder = BatchBuilder(options)
        builder.append(timestamp_ms, b"key", b"hanging")
        written = PartitionProduceData(index=partition, records=builder.build())
        request = ProduceRequest(
            transactional_id="lost",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[written])],
        )

        def is_written() -> bool:
            (row,) = client.ask(request, _PRODUCE_VERSION).responses[0].partition_responses
            assert row.error_code in {ErrorCode.NONE, *_NO_LEADER_YET}, row.error_code
            return bool(row.error_code == ErrorCode.NONE)

        wait_for(is_written, "a leader")
        return int(answer.producer_id)
