"""Fetches that wait: they keep no data, try again only when the missing bytes have arrived, and
notice every other change at once.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker.data_node import DataNode, batch, open_transaction, running, values_of
from broker.records.test_fetch import fetch_one, fill, orders, request
from support.waiting import take_turns

from moldau.broker.records.waiting_fetch import NO_ROOM_WAIT_MS
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.net import slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.producers.state import AppendOrigin
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import ProducerEpoch

if TYPE_CHECKING:
    from moldau.protocol.messages.fetch import PartitionData

HERE = Path("/disk")
PATIENCE_MS = 60_000


class CountingDisk(SimulatedDisk):
    """Counts the reads of fetches that must not read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def check_cached(self, path: Path) -> None:
        self.reads += 1
        super().check_cached(path)


def waiting(
    node: DataNode, min_bytes: int, *indexes: int, **fields: int
) -> "asyncio.Future[PartitionData]":
    sent = request(
        orders(fields.pop("offset", 0), *indexes, partition_max_bytes=fields.pop("most", 1 << 20)),
        min_bytes=min_bytes,
        max_wait_ms=PATIENCE_MS,
        **fields,
    )
    return asyncio.ensure_future(fetch_one(node, sent))


async def test_insufficient_appends_cause_no_reads() -> None:
    disk = CountingDisk()
    async with running(HERE, filesystem=disk) as node:
        node.create_topic("orders")
        fetches = [waiting(node, 1 << 19) for _ in range(50)]
        await take_turns()
        before = disk.reads
        for _ in range(20):
            await fill(node, b"x" * 1_000)
        await take_turns()
        assert disk.reads == before
        assert not any(each.done() for each in fetches)

        await fill(node, b"y" * (1 << 19))
        answers = await asyncio.gather(*fetches)
        assert all(len(values_of(answer.records)) == 21 for answer in answers)


async def test_existing_bytes_are_neither_read_nor_kept() -> None:
    disk = CountingDisk()
    async with running(HERE, filesystem=disk) as node:
        node.create_topic("orders")
        await fill(node, *(b"x" * 100_000 for _ in range(8)))
        kept_before = node.replicas.cold_reads.buffers.kept_bytes
        fetches = [waiting(node, 1 << 20) for _ in range(20)]
        await take_turns()
        assert node.replicas.cold_reads.buffers.kept_bytes == kept_before, "no data was read"
        assert not any(each.done() for each in fetches)
        node.clock.advance(ms=PATIENCE_MS + 5_000)
        answers = await asyncio.gather(*fetches)
        assert all(len(values_of(answer.records)) == 8 for answer in answers)


async def test_bytes_of_all_partitions_count_together() -> None:
    async with running(HERE, filesystem=CountingDisk()) as node:
        node.create_topic("orders", partitions=3)
        fetching = waiting(node, 2_000, 0, 1, 2)
        await take_turns()
        for index in (0, 1, 2):
            assert not fetching.done()
            await fill(node, b"x" * 700, index=index)
        assert values_of((await fetching).records) == [b"x" * 700]


async def test_more_than_a_partition_may_answer_does_not_count() -> None:
    disk = CountingDisk()
    async with running(HERE, filesystem=disk) as node:
        node.create_topic("orders", partitions=2)
        await fill(node, b"x" * 500, b"x" * 500, b"x" * 500)
        fetching = waiting(node, 1_500, 0, 1, most=700)
        await take_turns()
        before = disk.reads
        for _ in range(10):
            await fill(node, b"x" * 500)
        await take_turns()
        assert disk.reads == before, "it has as much of that one as it may have"
        assert not fetching.done()
        fetching.cancel()


async def test_the_end_of_a_transaction_reveals_all_records_after_it() -> None:
    async with running(HERE, filesystem=CountingDisk()) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        records = batch(
            b"x" * 3_000, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        await partition.wait_committed(open_transaction(partition, records).last_offset)
        late = waiting(node, 2_000, isolation_level=1)
        await fill(node, b"behind it")
        await take_turns()
        assert not late.done()
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=ControlType.COMMIT, coordinator_epoch=0),
            MarkerOrigin(producer_id=9, producer_epoch=ProducerEpoch(0)),
            node.clock.wall_ms(),
        )
        partition.append(bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=1)
        answer = await late
        assert len(answer.records or b"") > 3_000


async def test_a_lost_directory_is_reported_at_once_however_much_is_missing() -> None:
    async with running(HERE, filesystem=CountingDisk()) as node:
        node.create_topic("orders")
        fetching = waiting(node, 1 << 20)
        await take_turns()
        node.directories[0].fail(OSError(5, "the disk is gone"))
        assert (await fetching).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_fetch_without_room_for_records_gets_none_and_then_what_there_is() -> None:
    async with running(HERE, filesystem=SimulatedDisk()) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        budget = node.budget
        budget.hold_answers(budget.served_max)
        hurried = request(orders(0), min_bytes=1, max_wait_ms=0)
        assert not (await fetch_one(node, hurried)).records

        fetching = waiting(node, 1)
        await take_turns()
        assert not fetching.done()
        budget.hold_answers(-budget.served_max)
        node.clock.advance(NO_ROOM_WAIT_MS + 1_000)
        assert values_of((await fetching).records) == [b"a"]


async def test_a_fetch_that_waits_for_memory_is_answered_soon() -> None:
    async with running(HERE, filesystem=SimulatedDisk()) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        budget = node.budget
        budget.hold_answers(budget.served_max)
        fetching = waiting(node, 1)
        await take_turns()
        node.clock.advance(NO_ROOM_WAIT_MS + 1_000)
        assert not (await fetching).records


async def test_fetches_that_are_answered_in_one_turn_share_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 60.0)  # Long enough for all of them.
    async with running(HERE, filesystem=SimulatedDisk()) as node:
        node.create_topic("orders")
        await fill(node, *[b"x" * 500_000] * 4)
        size = node.replicas.lookup("orders", 0).log.segments.size_in_bytes
        node.budget = MemoryBudget(lambda: 4 * size)
        many = [waiting(node, 1 << 30, most=1 << 30) for _ in range(20)]
        await take_turns()
        node.clock.advance(PATIENCE_MS + 1_000)
        answers = await asyncio.gather(*many)
        assert 0 < sum(len(each.records or b"") for each in answers) <= node.budget.served_max
        await take_turns()
        assert node.budget.answer_bytes == 0
