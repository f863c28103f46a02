"""One request for many partitions: other requests run in between, and keep their records and
responses intact.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import NODE, DataNode, batch, directory_id, running, values_of
from broker.records.test_fetch import fetch, fill, orders
from broker.records.test_fetch import request as fetch_request

from moldau.broker.handlers.fetch import handle_fetch
from moldau.broker.handlers.produce import handle_produce
from moldau.broker.server.context import Staged
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage, PartitionImage
from moldau.net import slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.log_records import PartitionRecord, TopicRecord
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.records.compression import Compression
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

PARTITIONS = 32
PATIENCE_MS = 60_000
EXPANDED_BYTES = 1_900_000
"""A batch of a few thousand compressed records."""


class Turns:
    """Counts how often other tasks ran meanwhile."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._loop.call_soon(self._turn)


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check finds the slice over."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)


def produce_request(scratch: bytearray, *, acks: int = -1) -> ProduceRequest:
    """All partitions get the contents of `scratch`, and have only a view of it."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=index, records=memoryview(scratch))
                    for index in range(PARTITIONS)
                ],
            )
        ],
    )


async def produce(
    node: DataNode, scratch: bytearray, *, acks: int = -1
) -> tuple[ProduceResponse, bool]:
    """The response, and whether other tasks ran before the last batch was appended."""
    requested = produce_request(scratch, acks=acks)
    outcome: Any = handle_produce(node.context(requested, 9), requested)
    is_later = isinstance(outcome, Awaitable)
    # The next read of any connection.
    scratch[:] = bytes(len(scratch))
    outcome = await outcome if isinstance(outcome, Awaitable) else outcome
    answer = await outcome.answer if isinstance(outcome, Staged) else outcome
    assert isinstance(answer, ProduceResponse)
    return answer, is_later


@pytest.mark.usefixtures("short_slices")
async def test_others_are_served_while_many_batches_are_appended(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=PARTITIONS)
        turns = Turns()
        answer, is_later = await produce(node, batch(b"a"))
        assert is_later
        assert turns.count >= PARTITIONS
        answers = answer.responses[0].partition_responses
        assert [(each.index, each.error_code) for each in answers] == [
            (index, 0) for index in range(PARTITIONS)
        ]
        for index in range(PARTITIONS):
            log = node.replicas.lookup("orders", index).log
            assert values_of(log.read(Offset(0), 10_000).records) == [b"a"]


async def test_small_batches_that_expand_far_leave_others_their_turns(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=PARTITIONS)
        scratch = batch(bytes(EXPANDED_BYTES), compression=Compression.GZIP)
        turns = Turns()
        answer, is_later = await produce(node, scratch, acks=1)
        # Each takes about a slice of time.
        assert is_later
        assert turns.count >= PARTITIONS // 8
        assert not any(each.error_code for each in answer.responses[0].partition_responses)


@pytest.mark.usefixtures("short_slices")
async def test_others_are_served_while_many_partitions_are_read(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            await fill(node, b"%d" % index, index=index)
        requested = fetch_request(orders(0, *range(PARTITIONS)))
        turns = Turns()
        answer = await fetch(node, requested)
        # To find, to read and to respond.
        assert turns.count >= 3 * PARTITIONS
        assert [values_of(each.records) for each in answer.responses[0].partitions] == [
            [b"%d" % index] for index in range(PARTITIONS)
        ]
        assert node.budget.answer_bytes == 0


@pytest.mark.usefixtures("short_slices")
async def test_appends_during_a_fetch_attempt_are_not_missed(tmp_path: Path) -> None:
    # Committed as soon as it is appended.
    async with running(tmp_path, settings={"moldau.flush.policy": "os"}) as node:
        node.create_topic("orders", partitions=PARTITIONS)
        requested = fetch_request(orders(0, *range(PARTITIONS)), max_wait_ms=PATIENCE_MS)
        waiting = asyncio.ensure_future(fetch(node, requested))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.replicas.lookup("orders", 0).append(batch(b"early"))
        for _ in range(20 * PARTITIONS):
            await asyncio.sleep(0)
        assert waiting.done()
        answer = await waiting
        assert values_of(answer.responses[0].partitions[0].records) == [b"early"]


@pytest.mark.usefixtures("short_slices")
async def test_a_response_in_many_turns_is_refused_if_its_session_advances_meanwhile(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=PARTITIONS)
        first = await fetch(node, fetch_request(orders(0, *range(PARTITIONS)), session_epoch=0))
        requested = fetch_request(session_id=first.session_id, session_epoch=1)
        answering = handle_fetch(node.context(requested, 12), requested)
        assert not isinstance(answering, FetchResponse)
        slow = asyncio.ensure_future(answering)
        await asyncio.sleep(0)
        await fetch(node, fetch_request(session_id=first.session_id, session_epoch=2))
        assert (await slow).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


class NotedPartitions(dict[int, PartitionImage]):
    """Notes the turn of the loop in which each of them is looked at."""

    def __init__(self, partitions: Mapping[int, PartitionImage], turns: Turns) -> None:
        super().__init__(partitions)
        self.turns = turns
        self.seen: list[int] = []

    def items(self) -> Any:
        for item in super().items():
            self.seen.append(self.turns.count)
            yield item


@pytest.mark.usefixtures("short_slices")
async def test_a_start_runs_other_tasks_between_the_partitions_of_a_large_cluster(
    tmp_path: Path,
) -> None:
    """Most of them belong to other brokers."""
    node = DataNode(tmp_path)
    image = cluster_of(partitions=800, here=3)
    noted = NotedPartitions(image.topics["orders"].partitions, Turns())
    node.image = replace(
        image, topics={"orders": replace(image.topics["orders"], partitions=noted)}
    )
    await node.start()
    try:
        turns = [noted.seen.count(turn) for turn in set(noted.seen)]
        assert sum(turns) == 800
        assert max(turns) <= slices.ITEMS_BETWEEN_CHECKS
        assert len(node.replicas.partitions) == 3
    finally:
        await node.stop()


def cluster_of(*, partitions: int, here: int) -> MetadataImage:
    delta = MetadataDelta()
    topic_id = Uuid(b"topic".ljust(16))
    delta.replay(TopicRecord(name="orders", topic_id=topic_id))
    for index in range(partitions):
        broker = NODE if index < here else BrokerId(NODE + 1)
        delta.replay(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[broker],
                isr=[broker],
                leader=broker,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory_id(0)],
            )
        )
    return delta.finish(Offset(1), LeaderEpoch(1), 1_000)
