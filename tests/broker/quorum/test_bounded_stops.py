"""A node of the quorum stops in bounded time, and leaves in order even then."""

import asyncio
from pathlib import Path

from broker.metadata_node import bootstrapped, config, formatted, running
from broker.quorum.quorum_cluster import running_quorum
from broker.quorum.test_slow_disks import SlowSync
from support.waiting import take_turns, until

from moldau.core.quorum.rpc import EndQuorumEpochRequest
from moldau.testing.simulated_disk import Effect, SimulatedDisk

PART = ".checkpoint.part"
LATE_MS = 2_000
PATIENCE_MS = 1_000
ALWAYS = {"metadata.log.max.record.bytes.between.snapshots": "100000"}


async def test_a_stop_gives_up_the_snapshot_that_is_being_written() -> None:
    """After a second, and at the end of one write: however large the metadata are."""
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    async with running(path, ALWAYS, filesystem=disk) as node:
        await bootstrapped(node)
        before = list(node.quorum.log.snapshots.ids)
        slow = SlowSync(disk, PART, "append")
        written: list[Effect] = []
        disk.on_effect(lambda effect: written.append(effect) if PART in effect.path else None)
        for number in range(100):
            await node.commit(*(config(f"{number}-{each}", "x" * 100) for each in range(100)))
        await until(lambda: slow.reached > 0)
        stopping = asyncio.ensure_future(node.snapshots.stop())
        await take_turns()
        node.clock.advance(PATIENCE_MS)
        await take_turns()
        assert not stopping.done()
        written.clear()
        slow.release()
        await stopping
        assert [each.kind for each in written if each.kind in {"append", "sync"}] == []
        assert node.quorum.log.snapshots.ids == before
        assert not [name for name in disk.files() if name.endswith(PART)]
        assert node.failures == []


async def test_a_leader_that_cannot_commit_any_more_still_hands_over() -> None:
    """The disks of the others are slow: what it has appended is not committed in time."""
    patient = {
        "controller.quorum.fetch.timeout.ms": "30000",
        "controller.quorum.request.timeout.ms": "30000",
    }
    async with running_quorum(settings=patient) as cluster:
        leader = await cluster.commit("first")
        await cluster.wait_until_equal()
        slow = [
            SlowSync(member.disk, ".log", "sync")
            for member in cluster.members.values()
            if member is not leader
        ]
        leader.quorum.append([config("last", "value")], 1)
        await until(lambda: all(each.reached for each in slow))
        resigning = asyncio.ensure_future(leader.quorum.resign())
        await take_turns()
        assert leader.quorum.is_leader
        leader.clock.advance(LATE_MS)
        await until(
            lambda: any(
                isinstance(request, EndQuorumEpochRequest) for _, request in cluster.requests
            )
        )
        assert not leader.quorum.is_leader
        for each in slow:
            each.release()
        await resigning
        other = await cluster.wait_for_leader(other_than=leader.id)
        assert "first" in other.values
