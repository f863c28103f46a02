"""Flush rounds do not wait for an event loop that is busy to become idle."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.data_node import batch, running
from support.waiting import WAIT_TIMEOUT_S, until
from system.node.disk_watch import DiskWatch, disk_watch

from moldau.broker.replicas.flush_backlog import BACKLOG_BYTES_MAX, FlushBacklog
from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import Peer
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.storage.log.read import Isolation
from moldau.types import Offset

__all__ = ["disk_watch"]

FOR_EVER_S = 1_000


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """A thread gets the interpreter only when another one releases it."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(FOR_EVER_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("no_forced_switches")
async def test_a_busy_loop_lets_the_threads_of_a_round_run(
    tmp_path: Path, disk_watch: DiskWatch
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        rounds = node.replicas.flush_rounds
        committed = partition.wait_committed(Offset(0))
        disk_watch.syncs.clear()
        partition.append(batch(b"first"))
        await asyncio.sleep(0)
        # The round has begun. From here on nothing else releases the interpreter.
        for _ in range(10_000):
            if disk_watch.syncs:
                break
            rounds.let_threads_run()
        assert disk_watch.syncs
        await committed


class Producing:
    """A connection that has filled the backlog."""

    def __init__(self) -> None:
        self.peer: Peer | None = Peer(1, "PLAINTEXT", "127.0.0.1", 5)
        self.resumed = asyncio.Event()

    def fill(self, backlog: FlushBacklog) -> None:
        assert self.peer is not None
        backlog.add(self.peer, BACKLOG_BYTES_MAX)
        assert backlog.refuses(self)

    def resume(self) -> None:
        self.resumed.set()


async def test_no_append_waits_for_the_flush_of_a_deleted_log(
    tmp_path: Path, disk_watch: DiskWatch
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("kept")
        node.create_topic("deleted", number=2)
        rounds, producing = node.replicas.flush_rounds, Producing()
        disk_watch.block()
        node.replicas.lookup("kept", 0).append(batch(b"a round"))
        assert await asyncio.to_thread(disk_watch.waiting.acquire, timeout=60)
        gone = node.replicas.lookup("deleted", 0)
        gone.append(batch(b"for the next round"))
        producing.fill(rounds.backlog)
        rounds.flusher.forget(gone.log)
        assert not producing.resumed.is_set()
        disk_watch.release()
        await producing.resumed.wait()


@pytest.mark.parametrize("is_full_first", [True, False])
async def test_a_full_backlog_does_not_wait_for_the_interval(
    tmp_path: Path, disk_watch: DiskWatch, *, is_full_first: bool
) -> None:
    async with running(tmp_path, settings={"moldau.flush.interval.ms": "3600000"}) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        rounds, producing = node.replicas.flush_rounds, Producing()
        disk_watch.block()
        first = partition.wait_committed(Offset(0))
        partition.append(batch(b"first"))
        assert await asyncio.to_thread(disk_watch.waiting.acquire, timeout=60)
        second = partition.wait_committed(Offset(1))
        partition.append(batch(b"second"))
        if is_full_first:
            producing.fill(rounds.backlog)
        disk_watch.release()
        await first
        if not is_full_first:
            producing.fill(rounds.backlog)
        await producing.resumed.wait()
        await second


class OddDisk(DiskFileSystem):
    """While `is_odd`, fails for the indexes of one partition in an unforeseen way."""

    is_odd = False

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if self.is_odd and path.parent.name == "orders-0" and path.suffix == ".index":
            raise RuntimeError("odd")
        return super().open(path, create=create)


async def test_a_log_that_cannot_be_flushed_fails_its_own_requests_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = OddDisk()
    async with running(tmp_path, filesystem=disk) as node:
        node.create_topic("orders", partitions=2, configs={"internal.segment.bytes": "500"})
        odd, other = (node.replicas.lookup("orders", index) for index in range(2))
        last = Offset(19)
        for partition in (odd, other):
            for _ in range(last + 1):
                partition.append(batch(b"x" * 100))
        disk.is_odd = True
        await other.wait_committed(last)
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR: a flush of orders-0 failed"):
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                await odd.wait_committed(last)
        assert "flush of orders-0 failed unexpectedly" in caplog.text
        assert node.replicas.reports.failures["flush"] > 0
        await other.wait_committed(other.append(batch(b"later")).last_offset)
        # A retry clears up without a further append.
        disk.is_odd = False
        await until(lambda: odd.is_committed(last))
        await odd.wait_committed(odd.append(batch(b"later")).last_offset)


class Reader:
    """A waiting fetch."""

    def __init__(self, *, fails: bool = False) -> None:
        self.notified = asyncio.Event()
        self._fails = fails

    def more(self, _partition: Partition, _size_bytes: int) -> None:
        self.notified.set()
        if self._fails:
            raise RuntimeError("this one only")

    def changed(self, partition: Partition) -> None:
        self.more(partition, 0)


async def test_a_reader_that_fails_affects_neither_the_commit_nor_other_readers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        readers = [Reader(fails=True), Reader()]
        for reader in readers:
            partition.watch(reader, Isolation.HIGH_WATERMARK)
        await partition.wait_committed(partition.append(batch(b"first")).last_offset)
        assert all(reader.notified.is_set() for reader in readers)
        assert "notifying a reader failed unexpectedly" in caplog.text
        assert not node.replicas.reports.failures
        await partition.wait_committed(partition.append(batch(b"second")).last_offset)
