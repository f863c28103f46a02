"""A voter that needs records which the leader has cleaned away gets a snapshot instead."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest
from broker.metadata_node import config
from broker.quorum.quorum_cluster import METADATA, Member, running_quorum
from support.proofs import proves
from support.waiting import until

from moldau.broker.quorum.snapshots import SnapshotId, parse_snapshot_name
from moldau.core.metadata.snapshot_file import encode_snapshot
from moldau.core.metadata.snapshot_records import snapshot_records
from moldau.core.quorum.rpc import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
)
from moldau.protocol.error_codes import ErrorCode
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE
from moldau.types import BrokerId, LeaderEpoch

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


async def test_a_snapshot_may_be_deleted_while_it_is_read() -> None:
    """The follower fetches a later one, and the disk has not failed."""
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        await commit_until_cleaned(leader)
        log, voters = leader.quorum.log, leader.quorum.voters.by_id
        follower = voters[BrokerId(leader.id % 3 + 1)]
        snapshot = log.last_snapshot
        assert snapshot is not None
        request = FetchSnapshotRequest(
            replica=follower.key,
            epoch=LeaderEpoch(leader.quorum.leader_epoch),
            snapshot=snapshot,
            position=0,
            max_bytes=700,
        )
        answering = asyncio.ensure_future(leader.quorum.answer(request))
        # The piece is read in a thread, one turn of the loop later.
        await asyncio.sleep(0)
        snapshot_id = SnapshotId(snapshot.epoch, snapshot.offset)
        leader.disk.remove(log.path / snapshot_id.file_name)
        response = await answering
        assert isinstance(response, FetchSnapshotResponse)
        assert response.error is ErrorCode.SNAPSHOT_NOT_FOUND
        assert leader.failures == []
        assert log.directory.is_online


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


async def test_a_lost_response_does_not_begin_the_transfer_again() -> None:
    async with running_quorum(settings=CLEANED) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        committed = await commit_until_cleaned(leader)
        way_back = (leader.id, late)
        lost: list[int] = []

        def lose_the_second(_node: int, request: Request, response: Response) -> None:
            if isinstance(response, FetchSnapshotResponse) and response.position > 0 and not lost:
                lost.append(response.position)
                cluster.faults.cut.add(way_back)

        cluster.on_response = lose_the_second
        returned = await cluster.start(late)
        await until(lambda: bool(lost))
        cluster.on_sent = lambda *_: cluster.faults.cut.discard(way_back)
        await cluster.wait_until_equal()
        positions = [
            request.position
            for sender, request in cluster.requests
            if sender == late and isinstance(request, FetchSnapshotRequest)
        ]
        assert positions.count(0) == 1, positions
        assert positions.count(lost[0]) == 2, positions
        assert positions == sorted(positions)
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


async def test_a_log_that_does_not_continue_its_snapshot_starts_over() -> None:
    """The node was killed after it had the snapshot, while the log still had other records."""
    async with running_quorum() as cluster:
        old = await cluster.wait_for_leader()
        await old.commit("first")
        cluster.isolate(old.id)
        for number in range(60):
            old.quorum.append([config(f"lost-{number}", "x" * 50)], 1)
        offset = old.quorum.last_offset
        await until(lambda: old.quorum.log.flushed_offset > offset)
        old.quorum.store_recovery_point()
        leader = await cluster.commit("second", not_by=old.id)
        name, content = snapshot_of(leader)
        snapshot_id = parse_snapshot_name(name)
        assert snapshot_id is not None
        assert snapshot_id.offset < offset
        await until(lambda: f"{METADATA}/{RECOVERY_POINT_FILE}" in old.disk.files())
        await cluster.kill(old.id)
        cluster.disks[old.id].plant(Path(METADATA, name), content)
        restarted = await cluster.start(old.id)
        log = restarted.quorum.log
        assert (log.start_offset, log.end.offset) == (snapshot_id.offset, snapshot_id.offset)
        assert restarted.values.keys() == {"first", "second"}
        cluster.heal()
        await cluster.wait_until_equal()
        for is_power_cut in (False, True):
            await cluster.kill(old.id, is_power_cut=is_power_cut)
            await cluster.start(old.id)
            await cluster.wait_until_equal()


def snapshot_of(member: Member) -> tuple[str, bytes]:
    """The name and the content of the file."""
    image = member.feed.image
    head = member.quorum.snapshot_head(image)
    assert head is not None
    snapshot_id = SnapshotId(image.epoch, image.offset + 1)
    content = b"".join(encode_snapshot(head, snapshot_records(image), now_ms=1))
    return snapshot_id.file_name, content
