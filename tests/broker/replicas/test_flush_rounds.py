"""Flush rounds do not wait for an event loop that is busy to become idle."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.data_node import batch, running
from system.node.disk_watch import DiskWatch, disk_watch

from moldau.broker.replicas.flush_backlog import BACKLOG_BYTES_MAX, FlushBacklog
from moldau.broker.server.context import Peer
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
