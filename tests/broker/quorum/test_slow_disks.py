"""A slow disk delays what depends on it, and nothing else."""

import asyncio
import threading
from pathlib import Path

import pytest
from broker.metadata_node import config, formatted, running, topic
from broker.quorum.quorum_cluster import METADATA, running_quorum
from support.waiting import take_turns, until

from moldau.core.quorum.rpc import VoteRequest, VoteResponse
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.log_records import BeginTransactionRecord
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.types import BrokerId, LeaderEpoch, Uuid


class SlowSync:
    """Holds a thread in the effects on files with this ending, until `release`."""

    def __init__(self, disk: SimulatedDisk, ending: str, kind: str) -> None:
        self.reached = 0
        self._go = threading.Event()
        self._ending, self._kind = ending, kind
        self._loop_thread = threading.get_ident()
        disk.on_effect(self._hold)

    def release(self) -> None:
        self._go.set()

    def _hold(self, effect: Effect) -> None:
        is_held = effect.kind == self._kind and effect.path.endswith(self._ending)
        if is_held and not self._go.is_set():
            assert threading.get_ident() != self._loop_thread, "the event loop waits for a disk"
            self.reached += 1
            self._go.wait(30)


async def test_a_vote_waits_for_the_disk_and_the_event_loop_does_not() -> None:
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    async with running(path, filesystem=disk) as node:
        await node.commit(topic("a"))
        slow = SlowSync(disk, "quorum-state.tmp", "sync")
        candidate = VoterKey(BrokerId(9), Uuid(bytes([9]) * 16))
        request = VoteRequest(epoch=LeaderEpoch(7), candidate=candidate, last=node.quorum.log.end)
        asked = [asyncio.ensure_future(node.quorum.answer(request)) for _ in range(2)]
        await until(lambda: slow.reached > 0)
        await take_turns()
        assert not any(each.done() for each in asked)
        assert not node.quorum.is_leader
        assert b'"leaderEpoch":7' not in disk.files()[f"{METADATA}/quorum-state"]
        slow.release()
        answers = await asyncio.gather(*asked)
        assert [isinstance(each, VoteResponse) and each.is_granted for each in answers] == [
            True
        ] * 2
        stored = disk.files()[f"{METADATA}/quorum-state"]
        assert b'"leaderEpoch":7,"votedId":9' in stored


def read_in_threads_only(disk: SimulatedDisk, ending: str) -> None:
    """No file with that ending is in the page cache, and the event loop must not wait for one."""
    loop_thread = threading.get_ident()

    def wait(path: Path) -> None:
        assert threading.get_ident() != loop_thread, f"the event loop waits for {path}"

    disk.is_cold = lambda path: path.name.endswith(ending)
    disk.wait_for_disk = wait


async def test_a_start_reads_the_metadata_log_in_a_thread() -> None:
    """However large it and its snapshot are."""
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    settings = {"metadata.log.max.record.bytes.between.snapshots": "300"}
    async with running(path, settings, filesystem=disk) as node:
        for number in range(30):
            await node.commit(config(f"name-{number}", "value"))
        committed = node.image.configs
    assert sum(name.endswith(".checkpoint") for name in disk.files()) > 1
    loop_thread, read = threading.get_ident(), []

    def wait(waiting: Path) -> None:
        assert threading.get_ident() != loop_thread, f"the event loop waits for {waiting}"
        read.append(waiting.suffix)

    disk.wait_for_disk = wait
    disk.is_cold = lambda file: file.parent == Path(METADATA) and "tmp" not in file.name
    async with running(path, filesystem=disk) as node:
        # What the new epoch has appended is in the page cache.
        disk.is_cold = lambda _path: False
        assert node.image.configs == committed
    assert {".checkpoint", ".log"} <= set(read)


async def test_a_start_that_is_cancelled_leaves_no_open_log() -> None:
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    reached, go = threading.Event(), threading.Event()

    def wait(_path: Path) -> None:
        reached.set()
        go.wait(30)

    async def start() -> None:
        async with running(path, filesystem=disk):
            pass

    disk.is_cold = lambda file: file.suffix == ".checkpoint"
    disk.wait_for_disk = wait
    starting = asyncio.ensure_future(start())
    try:
        await until(reached.is_set)
        starting.cancel()
        await take_turns()
        # The thread uses the directory.
        assert not starting.done()
    finally:
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    disk.is_cold = lambda _path: False
    async with running(path, filesystem=disk) as node:
        await node.commit(topic("a"))


async def test_old_snapshots_are_deleted_without_a_wait_for_the_disk() -> None:
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "300",
        "metadata.max.retention.ms": "100000",
    }
    loop_thread, removed = threading.get_ident(), []

    def note_removal(effect: Effect) -> None:
        if effect.kind == "remove" and effect.path.endswith(".checkpoint"):
            assert threading.get_ident() != loop_thread
            removed.append(effect.path)

    async with running(path, settings, filesystem=disk) as node:
        disk.on_effect(note_removal)
        read_in_threads_only(disk, ".checkpoint")
        number = 0
        while len(removed) < 4:
            await node.commit(config("name", f"{number}"))
            node.clock.advance(10_000)
            number += 1
        assert node.failures == []
        await until(lambda: len(node.quorum.log.snapshots.ids) > 1)
        disk.is_cold = lambda _path: False


async def test_the_head_of_a_snapshot_needs_no_disk() -> None:
    """Whether or not there are later records, and if a transaction is open."""
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    async with running(path, filesystem=disk) as node:
        await node.commit(topic("a"))
        read_in_threads_only(disk, ".log")
        node.quorum.append([topic("b")], 1)
        assert node.quorum.snapshot_head(node.image) is not None
        await node.commit(BeginTransactionRecord(name="open"), topic("c"))
        assert node.quorum.snapshot_head(node.image) is None
        assert node.failures == []
        disk.is_cold = lambda _path: False


async def test_the_event_loop_syncs_nothing_of_a_truncation() -> None:
    async with running_quorum() as cluster:
        old = await cluster.wait_for_leader()
        await old.commit("first")
        cluster.isolate(old.id)
        for number in range(20):
            offset = old.quorum.append([config(f"lost-{number}", "x" * 40)], 1)
        await until(lambda: old.quorum.log.flushed_offset > offset)
        await cluster.commit("second", not_by=old.id)
        loop_thread, in_the_loop = threading.get_ident(), []

        def note_sync(effect: Effect) -> None:
            if effect.kind.startswith("sync") and threading.get_ident() == loop_thread:
                in_the_loop.append(effect)

        old.disk.on_effect(note_sync)
        cluster.heal()
        await cluster.wait_until_equal()
        assert old.quorum.log.truncations == 1
        assert in_the_loop == []


async def test_what_is_not_in_the_page_cache_is_read_in_threads() -> None:
    """By a leader for its followers, and by a node for its own listeners."""
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        for number in range(30):
            await leader.commit(f"name-{number}")
        loop_thread, read = threading.get_ident(), []

        def wait(path: Path) -> None:
            assert threading.get_ident() != loop_thread, "the event loop waits for a disk"
            read.append(path)
            cold.discard(path)

        cold = {Path(name) for name in leader.disk.files() if name.endswith(".log")}
        leader.disk.is_cold = lambda path: path in cold
        leader.disk.wait_for_disk = wait
        returned = await cluster.start(late)
        await cluster.wait_until_equal()
        assert read
        assert returned.values.keys() == {f"name-{number}" for number in range(30)}
        # The same for the listeners of a node that has just started.
        await cluster.kill(late)
        disk = cluster.disks[late]
        read.clear()
        cluster.isolate(late)
        restarted = await cluster.start(late)
        cold = {Path(name) for name in disk.files() if name.endswith(".log")}
        disk.is_cold = lambda path: path in cold
        disk.wait_for_disk = wait
        cluster.heal()
        await cluster.wait_until_equal()
        assert read
        assert restarted.values == returned.values


async def test_a_follower_acknowledges_only_what_it_has_flushed() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.commit("first")
        await cluster.wait_until_equal()
        slow = [
            SlowSync(member.disk, ".log", "sync")
            for member in cluster.members.values()
            if member is not leader
        ]
        offset = leader.quorum.append([config("second", "value")], 1)
        await until(lambda: all(each.reached for each in slow))
        await until(lambda: leader.quorum.log.flushed_offset > offset)
        await take_turns()
        assert leader.quorum.high_watermark <= offset
        slow[0].release()
        await leader.quorum.wait_committed(offset)
        slow[1].release()
        await cluster.wait_until_equal()
