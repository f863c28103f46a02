"""Reads that go to the disk: they delay no other request, return what cached reads return, and an
error of the disk is an error and not the end of the process.
"""

import asyncio
import errno
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import DataNode, batch, open_transaction, running, values_of
from broker.records.test_fetch import fetch, fetch_one, fill, orders, request
from broker.records.test_produce import produce
from broker.records.test_produce import request as produce_request

from moldau.broker.handlers.fetch import handle_fetch
from moldau.compiled import USE_COMPILED
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.disk import disk_calls
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.disk.cached_views import view_of
from moldau.storage.log.read import Isolation
from moldau.storage.producers.state import AppendOrigin
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset, ProducerEpoch

HERE = Path("/disk")
PATIENCE_S = 20
SMALL_SEGMENTS = {"internal.segment.bytes": "2000", "index.interval.bytes": "100"}


class SlowDisk(SimulatedDisk):
    """Its cold files are read when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = threading.Event()
        self.answers = threading.Event()
        self.threads: set[str] = set()
        self.wait_for_disk = self._wait

    def _wait(self, _path: Path) -> None:
        self.threads.add(threading.current_thread().name)
        self.requested.set()
        assert self.answers.wait(PATIENCE_S)

    async def until_asked(self) -> None:
        assert await asyncio.to_thread(self.requested.wait, PATIENCE_S)

    def cool_down(self, *names: str) -> None:
        """All files of the partitions are cold."""
        self.is_cold = lambda path: path.parent.name in names


@asynccontextmanager
async def cold_node(*names: str, partitions: int = 2) -> AsyncIterator[tuple[DataNode, SlowDisk]]:
    """A node with several segments in each partition; only the newest records are in memory."""
    disk = SlowDisk()
    async with running(HERE, filesystem=disk) as node:
        node.create_topic("orders", partitions=partitions, configs=SMALL_SEGMENTS)
        for index in range(partitions):
            await fill(node, *(b"%d" % number * 50 for number in range(40)), index=index)
        await node.restart()
        disk.cool_down(*names)
        try:
            yield node, disk
        finally:
            disk.answers.set()


async def read_all(node: DataNode, **fields: object) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < 40:
        answer = await fetch_one(node, request(orders(len(values), **fields)))
        assert answer.error_code == 0
        values += values_of(answer.records)
    return values


async def test_a_slow_disk_keeps_only_its_own_readers_waiting() -> None:
    async with cold_node("orders-0") as (node, disk):
        slow = asyncio.ensure_future(fetch_one(node, request(orders())))
        await disk.until_asked()

        await fill(node, b"new", index=1)
        quick = handle_fetch(node.context(FetchRequest(), 12), request(orders(40, 1)))
        quick = quick if isinstance(quick, FetchResponse) else await quick
        assert values_of(quick.responses[0].partitions[0].records) == [b"new"]
        assert not slow.done()

        disk.answers.set()
        assert values_of((await slow).records)[0] == b"0" * 50


async def test_the_loop_s_own_thread_never_waits_for_a_disk() -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        assert await read_all(node) == [b"%d" % number * 50 for number in range(40)]
        assert disk.threads
        assert all(name.startswith("moldau-read") for name in disk.threads)
        assert node.replicas.cold_reads.count >= len(node.replicas.lookup("orders", 0).log.segments)
        assert node.replicas.cold_reads.bytes_in_flight == 0


async def test_cached_bytes_are_answered_at_once() -> None:
    async with cold_node() as (node, disk):
        await read_all(node)
        requested = request(orders(3))
        assert isinstance(handle_fetch(node.context(requested, 12), requested), FetchResponse)
        assert not disk.threads


@pytest.mark.parametrize("max_bytes", [1, 150, 700, 5_000, 1 << 20])
async def test_limits_are_those_of_cached_reads(max_bytes: int) -> None:
    async with cold_node() as (node, disk):
        disk.answers.set()
        for offset in (0, 7, 23, 39):
            requested = request(orders(offset, 0, 1, partition_max_bytes=400), max_bytes=max_bytes)
            disk.cool_down("orders-0", "orders-1")
            cold = await fetch(node, requested)
            disk.cool_down()
            warm = await fetch(node, requested)
            assert _records(cold) == _records(warm)


def _records(response: FetchResponse) -> list[bytes]:
    found = [partition.records for topic in response.responses for partition in topic.partitions]
    return [bytes(each) if isinstance(each, memoryview) else b"" for each in found]


async def test_aborted_transactions_are_returned_with_cold_batches() -> None:
    async with cold_node(partitions=1) as (node, disk):
        partition = node.replicas.lookup("orders", 0)
        batch_in_transaction = batch(
            b"never", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        open_transaction(partition, batch_in_transaction)
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=ControlType.ABORT, coordinator_epoch=0),
            MarkerOrigin(producer_id=9, producer_epoch=ProducerEpoch(0)),
            node.clock.wall_ms(),
        )
        partition.append(bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=1)
        await fill(node, b"after")
        await node.restart()
        disk.cool_down("orders-0")
        disk.answers.set()
        answer = await fetch_one(node, request(orders(40), isolation_level=1))
        assert answer.aborted_transactions is not None
        assert [each.producer_id for each in answer.aborted_transactions] == [9]


async def test_a_sector_that_cannot_be_read_takes_the_directory_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        path = node.replicas.lookup("orders", 0).log.segments[0].path()
        disk.fail_reads(path, OSError(errno.EIO, os.strerror(errno.EIO), str(path)))
        with caplog.at_level(logging.ERROR):
            answer = await fetch_one(node, request(orders()))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not node.directories[0].is_online
        assert any("offline" in line and str(path) in line for line in caplog.messages)


async def test_loaded_bytes_count_as_memory_of_responses() -> None:
    async with cold_node() as (node, disk):
        await fetch(node, request(orders()))
        disk.is_cold = lambda path: path.suffix == ".log"
        requested = request(orders())
        context = node.context(requested, 12)
        outcome = handle_fetch(context, requested)
        assert not isinstance(outcome, FetchResponse)
        slow = asyncio.ensure_future(outcome)
        await disk.until_asked()
        assert context.broker.budget.answer_bytes > 0
        disk.answers.set()
        assert (await slow).responses[0].partitions[0].records
        assert context.broker.budget.answer_bytes == 0


async def test_a_reader_whose_topic_is_deleted_meanwhile_gets_the_error() -> None:
    async with cold_node("orders-0") as (node, disk):
        slow = asyncio.ensure_future(fetch_one(node, request(orders())))
        await disk.until_asked()
        node.delete_topic()
        disk.answers.set()
        assert (await slow).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_truncated_during_a_read_are_not_returned() -> None:
    async with cold_node("orders-0") as (node, disk):
        slow = asyncio.ensure_future(fetch_one(node, request(orders(20))))
        await disk.until_asked()
        partition = node.replicas.lookup("orders", 0)
        disk.cool_down()
        disk.answers.set()
        partition.log.high_watermark = Offset(20)
        partition.log.truncate_to(Offset(20), node.clock.wall_ms())
        assert (await slow).records == b""


@pytest.mark.skipif(not disk_calls.CACHED_ONLY, reason="only Linux reports what is cached")
@pytest.mark.skipif(not USE_COMPILED, reason="views are compiled")
async def test_no_view_of_a_file_waits_for_the_disk(tmp_path: Path) -> None:
    """The memory behind its view could leave the page cache meanwhile."""
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=2)
        for index in range(2):
            await fill(node, *(os.urandom(50_000) for _ in range(6)), index=index)
        file = node.replicas.lookup("orders", 1).log.segments[0].file
        file.sync()
        with file.path.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        requested = request(orders(0, 0, 1))
        context = node.context(requested, 12)
        context.peer.takes_files = True
        outcome = handle_fetch(context, requested)
        if isinstance(outcome, FetchResponse):
            pytest.skip("this file system keeps its files in memory")
        partitions = (await outcome).responses[0].partitions
        assert [len(values_of(each.records)) for each in partitions] == [6, 6]
        assert [view_of(each.records) for each in partitions] == [None, None]
        # Nothing is cold any more, and this is not the first request.
        handle_fetch(context, requested)
        outcome = handle_fetch(context, requested)
        assert isinstance(outcome, FetchResponse)
        assert all(view_of(each.records) for each in outcome.responses[0].partitions)


async def test_nothing_of_a_cold_read_waits_for_the_garbage_collector() -> None:
    """Its buffers would not be reused before that, and it hardly ever runs."""
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        gc.collect()
        gc.disable()
        try:
            assert len(await read_all(node)) == 40
            assert node.replicas.cold_reads.count > 0
            left = [each for each in gc.get_objects() if isinstance(each, NotCachedError)]
            assert left == []
        finally:
            gc.enable()


async def test_a_client_that_is_gone_leaves_no_read() -> None:
    async with cold_node("orders-0") as (node, disk):
        slow = asyncio.ensure_future(fetch_one(node, request(orders())))
        await disk.until_asked()
        slow.cancel()
        disk.answers.set()
        await asyncio.wait([slow])
        while node.replicas.cold_reads.bytes_in_flight:  # noqa: ASYNC110 - no event is available
            await asyncio.sleep(0)


async def test_bytes_in_flight_are_bounded_even_when_clients_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.broker.records.cold_reads.BYTES_IN_FLIGHT_MAX", 1)
    async with cold_node() as (node, disk):
        await fetch(node, request(orders(0, 0, 1)))
        disk.is_cold = lambda path: path.suffix == ".log"
        cold_reads = node.replicas.cold_reads
        before = cold_reads.count
        requested = [
            asyncio.ensure_future(fetch_one(node, request(orders(0, index, partition_max_bytes=9))))
            for index in (0, 1, 0, 1)
        ]
        await disk.until_asked()
        assert cold_reads.count == before + 1, "the others wait for their turn"
        requested.pop(1).cancel()
        disk.answers.set()
        assert all([(await each).records for each in requested])
        assert cold_reads.bytes_in_flight == 0


async def test_a_waiting_fetch_is_answered_from_cold_files() -> None:
    async with cold_node(partitions=1) as (node, disk):
        disk.answers.set()
        waiting = asyncio.ensure_future(fetch_one(node, request(orders(40), max_wait_ms=60_000)))
        await asyncio.sleep(0)
        disk.cool_down("orders-0")
        await fill(node, b"new")
        assert values_of((await waiting).records) == [b"new"]


async def test_a_whole_log_is_read_in_threads_for_its_coordinator() -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        log = node.replicas.lookup("orders", 0).log
        found = await node.replicas.cold_reads.read(
            log, Offset(0), 1 << 20, isolation=Isolation.LOG_END
        )
        assert values_of(found.records)[0] == b"0" * 50
        assert all(name.startswith("moldau-read") for name in disk.threads)


async def test_a_lack_of_descriptors_is_reported_to_readers() -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        path = node.replicas.lookup("orders", 0).log.segments[0].path()
        disk.fail_reads(path, OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path)))
        before = node.replicas.cold_reads.count
        answer = await fetch_one(node, request(orders()))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.replicas.cold_reads.count - before < 5, "it is not tried again and again"
        assert node.directories[0].is_online
        assert values_of((await fetch_one(node, request(orders(30)))).records)[0] == b"30" * 50


async def test_an_unreadable_file_is_not_a_full_disk() -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        path = node.replicas.lookup("orders", 0).log.segments[0].path()
        disk.fail_reads(path, OSError(errno.EACCES, os.strerror(errno.EACCES), str(path)))
        answer = await fetch_one(node, request(orders()))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not node.directories[0].is_online
        assert not node.replicas.reports.is_full(node.directories[0])


async def test_a_waiting_fetch_is_answered_when_its_retry_fails() -> None:
    async with cold_node() as (node, disk):
        await read_all(node)
        requested = request(orders(40), max_wait_ms=60_000)
        waiting = handle_fetch(node.context(requested, 12), requested)
        assert not isinstance(waiting, FetchResponse)

        def surprise(_path: Path) -> None:
            raise RuntimeError("unexpected")

        disk.cool_down("orders-0")
        disk.wait_for_disk = surprise
        await fill(node, b"new")
        with pytest.raises(RuntimeError, match="unexpected"):
            await asyncio.wait_for(waiting, PATIENCE_S)


async def test_changes_on_the_disk_since_the_write_are_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node trusts data that it wrote or has checked, but not the disk that returns it."""
    async with cold_node(partitions=1) as (node, disk):
        disk.answers.set()
        assert await read_all(node) == [b"%d" % number * 50 for number in range(40)]
        bad = 1
        damaged = node.replicas.lookup("orders", 0).log.segments[0]
        position = damaged.file.read(0, damaged.size).index(b"%d" % bad * 50)
        disk.open(damaged.path()).write_at(position, b"?")
        assert not node.replicas.lookup("orders", 0).log.segments[0].damaged

        disk.cool_down("orders-0")
        found: list[bytes | None] = []
        for offset in range(40):
            answer = await fetch_one(node, request(orders(offset, partition_max_bytes=1)))
            if offset == bad:
                assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            else:
                assert answer.error_code == 0
                found.append(values_of(answer.records)[0])
        assert found == [b"%d" % number * 50 for number in range(40) if number != bad]
        assert f"offsets {bad} to {bad} cannot be read" in caplog.text


async def test_a_length_that_the_disk_has_changed_is_damage_though_more_is_cached_by_then() -> None:
    disk = SlowDisk()
    async with running(HERE, filesystem=disk) as node:
        node.create_topic("orders")
        await fill(node, *(b"%02d" % n * 2500 for n in range(40)))
        segment = node.replicas.lookup("orders", 0).log.segments[0]
        batch_bytes = segment.size // 40
        # It reaches further than the thread reads, but not beyond the file.
        length = 5 * batch_bytes - 12
        disk.open(segment.path()).write_at(10 * batch_bytes + 8, length.to_bytes(4, "big"))
        loads: list[Path] = []
        disk.is_cold = lambda path: path.name.endswith(".log") and not loads
        disk.wait_for_disk = loads.append
        answer = await fetch_one(node, request(orders(10, partition_max_bytes=1)))
        assert loads
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_a_retry_after_a_start_is_looked_up_without_blocking_the_loop(
    compression: Compression,
) -> None:
    """A snapshot has only the last batch of a producer; the ones before it lie on a cold disk."""

    def sent(number: int) -> ProduceRequest:
        options: Any = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        return produce_request(batch(b"%d" % number * 50, compression=compression, **options))

    async with cold_node(partitions=1) as (node, disk):
        offsets = [(await produce(node, sent(number))).base_offset for number in range(10)]
        await fill(node, *(b"x" * 50 for _ in range(40)))
        await node.restart()
        disk.cool_down("orders-0")
        retry = asyncio.ensure_future(produce(node, sent(6)))
        await disk.until_asked()
        assert not retry.done()
        disk.answers.set()
        answer = await retry
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offsets[6])
        assert all(name.startswith("moldau-read") for name in disk.threads)
        # By now all batches that can be in flight are known.
        for number in range(5, 10):
            assert (await produce(node, sent(number))).base_offset == offsets[number]
        assert (await produce(node, sent(10))).base_offset == 90
