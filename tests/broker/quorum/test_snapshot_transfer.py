"""A voter that needs records which the leader has cleaned away gets a snapshot instead."""

import errno
from dataclasses import replace

import pytest
from broker.quorum.quorum_cluster import Member, running_quorum
from support.proofs import proves
from support.waiting import until

from moldau.core.quorum.rpc import FetchSnapshotResponse, Request, Response

# Snapshots are made often, and the log before them is deleted.
CLEANED = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "internal.metadata.log.segment.bytes": "1500",
    "metadata.max.retention.bytes": "4000",
    "controller.quorum.fetch.snapshot.max.bytes": "700",
}


async def commit_until_cleaned(leader: Member) -> dict[str, str]:
    """Returns what was committed: enough that the log no longer begins at its start."""
    number = 0
    while leader.quorum.log.start_offset == 0:
        await leader.commit(f"name-{number % 40}", f"{number}" * 10)
        number += 1
    return dict(leader.values)


@proves("controller.quorum.fetch.snapshot.max.bytes")
async def test_a_wiped_voter_returns_by_a_snapshot_in_pieces() -> None:
    async with running_quorum(settings=CLEANED, is_static=True) as cluster:
        leader = await cluster.wait_for_leader()
        wiped = leader.id % 3 + 1
        await cluster.kill(wiped)
        committed = await commit_until_cleaned(leader)
        cluster.wipe(wiped)
        cluster.requests.clear()
        returned = await cluster.start(wiped)
        await cluster.wait_until_equal()
        assert returned.values == committed
        size = returned.quorum.log.snapshots.size_in_bytes(returned.quorum.log.snapshots.ids[-1])
        assert cluster.snapshot_pieces(wiped) >= size // 700
        events = [each for each in returned.listener.events if not each.startswith("leader")]
        assert events[0].startswith("snapshot ")
        # It can lead with what it has.
        while (leader := await cluster.wait_for_leader()) is not returned:
            await cluster.stop(leader.id)
            await cluster.start(leader.id)
        await returned.commit("as the leader")
        await cluster.wait_until_equal()


async def test_a_snapshot_that_arrived_is_there_after_a_restart() -> None:
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        committed = await commit_until_cleaned(leader)
        await cluster.start(late)
        await cluster.wait_until_equal()
        for is_power_cut in (False, True):
            await cluster.kill(late, is_power_cut=is_power_cut)
            restarted = await cluster.start(late)
            await cluster.wait_until_equal()
            assert restarted.values == committed
            assert restarted.quorum.log.start_offset > 0
            assert restarted.failures == []


async def test_a_damaged_snapshot_is_refused_and_fetched_again() -> None:
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        committed = await commit_until_cleaned(leader)
        damaged: list[Response] = []

        def damage(_request: Request, response: Response) -> Response:
            if isinstance(response, FetchSnapshotResponse) and response.content and not damaged:
                damaged.append(response)
                content = bytearray(response.content)
                content[len(content) // 2] ^= 0xFF
                return replace(response, content=bytes(content))
            return response

        cluster.faults.change = damage
        returned = await cluster.start(late)
        await cluster.wait_until_equal()
        assert damaged
        assert returned.values == committed
        assert returned.failures == []
        assert not [name for name in returned.disk.files() if name.endswith(".part")]


@pytest.mark.parametrize("piece", [0, 1])
async def test_a_full_disk_refuses_a_snapshot_and_takes_it_later(piece: int) -> None:
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        committed = await commit_until_cleaned(leader)
        disk, seen = cluster.disks[late], []

        def fill_up(effect: object) -> None:
            if str(getattr(effect, "path", "")).endswith(".part"):
                seen.append(effect)
                if len(seen) == piece + 1:
                    disk.short_write_at(disk.effects + 1, 3, OSError(errno.ENOSPC, "full"))

        disk.on_effect(fill_up)
        returned = await cluster.start(late)
        await until(lambda: len(seen) > piece)
        await cluster.wait_until_equal()
        assert returned.values == committed
        assert returned.failures == []


async def test_an_interrupted_transfer_begins_again_with_another_leader() -> None:
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        committed = await commit_until_cleaned(leader)
        await cluster.wait_until_equal()
        returned = await cluster.start(late)
        await until(lambda: cluster.snapshot_pieces(late) > 1)
        await cluster.kill(leader.id)
        await cluster.wait_for_leader()
        await cluster.wait_until_equal()
        assert returned.values == committed
        assert not [name for name in returned.disk.files() if name.endswith(".part")]
