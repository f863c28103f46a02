"""Ids for idempotent producers, and the state that partitions keep about them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import batch, running

from moldau.broker.cluster.producer_ids import ProducerIds
from moldau.broker.handlers.describe_producers import handle_describe_producers
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId


class Controller:
    """Allocates blocks of three."""

    def __init__(self) -> None:
        self.requests: list[AllocateProducerIdsRequest] = []
        self.refusal: ErrorCode | None = None

    async def send(self, request: Message, version: int | None = None) -> Message:
        await asyncio.sleep(0)
        assert version is None
        assert isinstance(request, AllocateProducerIdsRequest)
        self.requests.append(request)
        if self.refusal is not None:
            return AllocateProducerIdsResponse(error_code=self.refusal)
        return AllocateProducerIdsResponse(
            producer_id_start=1000 * len(self.requests), producer_id_len=3
        )


async def test_ids_are_unique_and_come_in_blocks() -> None:
    controller = Controller()
    ids = ProducerIds(BrokerId(7), controller, lambda: 42)
    given = await asyncio.gather(*(ids.next() for _ in range(7)))
    assert sorted(given) == [1000, 1001, 1002, 2000, 2001, 2002, 3000]
    assert [(r.broker_id, r.broker_epoch) for r in controller.requests] == [(7, 42)] * 3


async def test_without_a_controller_clients_get_a_retriable_error() -> None:
    controller = Controller()
    controller.refusal = ErrorCode.STALE_BROKER_EPOCH
    ids = ProducerIds(BrokerId(7), controller, lambda: 42)
    with pytest.raises(KafkaError) as failure:
        await ids.next()
    assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    controller.refusal = None
    assert await ids.next() == 2000


async def test_partitions_describe_their_producers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        partition.append(
            batch(b"a", b"b", timestamp_ms=50, producer_id=9, producer_epoch=2, base_sequence=0)
        )
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="orders", partition_indexes=[0, 5]),
                TopicRequest(name="not a name", partition_indexes=[0]),
            ]
        )
        response: Any = handle_describe_producers(node.context(request), request)
        known, missing = response.topics[0].partitions
        producer = known.active_producers[0]
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 1)
        assert (producer.last_timestamp, producer.current_txn_start_offset) == (50, -1)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bad = response.topics[1].partitions[0]
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
