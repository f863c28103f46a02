"""Several voters: they elect a leader, commit, and survive the loss of any of them."""

import asyncio
import errno

import pytest
from broker.metadata_node import config
from broker.quorum.quorum_cluster import (
    Member,
    QuorumCluster,
    finish_by_time,
    running_quorum,
)
from support.waiting import until

from moldau.broker.quorum.listener import QuorumListener
from moldau.core.quorum.positions import FIRST_POSITION
from moldau.core.quorum.rpc import EndQuorumEpochRequest, FetchSnapshotRequest
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.failures import DiskFullError
from moldau.testing.simulated_disk import Effect
from moldau.types import BrokerId, LeaderEpoch


def batches_of(member: Member) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.last_offset, each.epoch) for each in member.listener.batches]


def check_order(cluster: QuorumCluster) -> None:
    """Every listener has received the same batches, in order and once."""
    longest = max((batches_of(each) for each in cluster.members.values()), key=len)
    for member in cluster.members.values():
        found = batches_of(member)
        assert found == longest[: len(found)]
        assert [first for first, _, _ in found] == [0, *(last + 1 for _, last, _ in found[:-1])]


@pytest.mark.parametrize("is_static", [True, False])
async def test_three_voters_elect_a_leader_and_commit(is_static: bool) -> None:
    async with running_quorum(is_static=is_static) as cluster:
        leader = await cluster.wait_for_leader()
        assert leader.quorum.kraft_version == (0 if is_static else 1)
        for number in range(20):
            await leader.commit(f"name-{number}")
        await cluster.wait_until_equal()
        assert [len(each.values) for each in cluster.members.values()] == [20, 20, 20]
        check_order(cluster)
        for member in cluster.members.values():
            assert member.quorum.leader_id == leader.id
            assert member.quorum.leader_address == ("127.0.0.1", leader.id)
            assert member.quorum.is_voter
            assert member.quorum.voters.by_id.keys() == {1, 2, 3}
            assert f"leader {leader.id} epoch" in " ".join(member.listener.events)
        assert cluster.files(1) == cluster.files(2) == cluster.files(3)


async def test_a_record_is_committed_with_one_voter_away_and_not_with_two() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        first, second = (number for number in (1, 2, 3) if number != leader.id)
        await cluster.kill(first)
        await leader.commit("with two")
        await cluster.kill(second)
        offset = leader.quorum.append([config("alone", "value")], 1)
        # It finds that it has lost its majority.
        with pytest.raises(KafkaError) as caught:
            await leader.quorum.wait_committed(offset)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert leader.listener.events[-1].startswith("leader -1")
        assert "alone" not in leader.values


async def test_the_others_continue_when_the_leader_is_killed() -> None:
    async with running_quorum() as cluster:
        killed = await cluster.wait_for_leader()
        epoch = killed.quorum.leader_epoch
        await killed.commit("before")
        await cluster.kill(killed.id)
        leader = await cluster.wait_for_leader()
        assert leader.quorum.leader_epoch > epoch
        await leader.commit("after")
        await cluster.start(killed.id)
        await cluster.wait_until_equal()
        assert [each.values.keys() for each in cluster.members.values()] == [
            {"before", "after"}
        ] * 3
        assert cluster.files(1) == cluster.files(2) == cluster.files(3)
        check_order(cluster)


@pytest.mark.parametrize("is_flushed", [True, False])
async def test_a_returning_leader_drops_what_was_never_committed(is_flushed: bool) -> None:
    """Also if it was on its disk, and promised to be there by the recovery point (finding 13)."""
    async with running_quorum() as cluster:
        old = await cluster.wait_for_leader()
        await old.commit("first")
        cluster.isolate(old.id)
        waits = []
        for number in range(30):
            offset = old.quorum.append([config(f"lost-{number}", "x" * 100)], 1)
            waits.append(asyncio.ensure_future(old.quorum.wait_committed(offset)))
        if is_flushed:
            await until(lambda: old.quorum.log.flushed_offset > offset)
            old.quorum.store_recovery_point()
        leader = await cluster.wait_for_leader(other_than=old.id)
        await leader.commit("second")
        for refused in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(refused, KafkaError)
        cluster.heal()
        await cluster.wait_until_equal()
        assert old.values.keys() == {"first", "second"}
        assert cluster.files(1) == cluster.files(2) == cluster.files(3)
        check_order(cluster)
        for number in (1, 2, 3):
            await cluster.kill(number, is_power_cut=True)
        await cluster.start_all()
        await cluster.wait_for_leader()
        await cluster.wait_until_equal()
        assert cluster.members[old.id].values.keys() == {"first", "second"}


async def test_every_leadership_is_announced_and_can_append() -> None:
    """A node that leads again begins anew (CLUSTER 2.1)."""
    async with running_quorum() as cluster:
        first = await cluster.wait_for_leader()
        await first.commit("one")
        for number in range(2):
            leader = await cluster.wait_for_leader()
            cluster.isolate(leader.id)
            leader.quorum.append([config("lost", "value")], 1)
            other = await cluster.wait_for_leader(other_than=leader.id)
            await until(lambda leader=leader: not leader.quorum.is_leader)  # type: ignore[misc]
            await other.commit(f"by another {number}")
            cluster.heal()
            await cluster.wait_until_equal()
        # Until the first leads again.
        while (leader := await cluster.wait_for_leader()) is not first:
            cluster.isolate(leader.id)
            await cluster.wait_for_leader(other_than=leader.id)
            cluster.heal()
            await cluster.wait_until_equal()
        await first.commit("again")
        await cluster.wait_until_equal()
        assert "lost" not in first.values
        announced = [
            each for each in first.listener.events if each.startswith(f"leader {first.id} ")
        ]
        assert len(set(announced)) == len(announced) >= 2
        check_order(cluster)


async def test_a_leader_that_stops_hands_over_at_once() -> None:
    async with running_quorum(
        settings={
            "controller.quorum.fetch.timeout.ms": "30000",
            "controller.quorum.request.timeout.ms": "30000",
        }
    ) as cluster:
        stopped = await cluster.wait_for_leader()
        offset = stopped.quorum.append([config("last words", "value")], 1)
        await cluster.stop(stopped.id)
        leader = await cluster.wait_for_leader()
        assert leader.quorum.high_watermark > offset
        assert "last words" in leader.values
        told = [each for each in cluster.requests if isinstance(each[1], EndQuorumEpochRequest)]
        assert {sender for sender, _ in told} == {stopped.id}


async def test_a_stop_does_not_wait_for_a_majority_that_is_away() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        for number in {1, 2, 3} - {leader.id}:
            await cluster.kill(number)
        leader.quorum.append([config("never", "value")], 1)
        assert await finish_by_time(leader.clock, cluster.stop(leader.id)) < 600_000


def no_room(effect: Effect) -> OSError | None:
    is_write = effect.kind == "append" and effect.path.endswith(".log")
    return OSError(errno.ENOSPC, "full") if is_write else None


async def test_a_leader_whose_disk_is_full_hands_over() -> None:
    async with running_quorum() as cluster:
        full = await cluster.wait_for_leader()
        await full.commit("before")
        full.disk.error_of = no_room
        with pytest.raises(DiskFullError):
            await full.commit("refused")
        leader = await cluster.wait_for_leader(other_than=full.id)
        await leader.commit("after")
        assert full.failures == []
        full.disk.error_of = lambda _effect: None
        await cluster.wait_until_equal()
        assert full.values.keys() == {"before", "after"}


async def test_a_controller_that_cannot_be_active_hands_over() -> None:
    class Refusing(QuorumListener):
        def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
            if leader_id == 1:
                refused.append(epoch)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room for the first records")

    refused: list[int] = []
    cluster = QuorumCluster()
    cluster.listeners[1] = [Refusing()]
    try:
        await cluster.start_all()
        # Until the first node was elected.
        while not refused:
            leader = await cluster.commit("by another")
            if leader.id != 1:
                cluster.isolate(leader.id)
                await cluster.wait_for_leader(other_than=leader.id)
                cluster.heal()
                await cluster.wait_until_equal()
        assert (await cluster.commit("in the end", not_by=1)).id != 1
        assert cluster.members[1].failures == []
    finally:
        await cluster.close()


async def test_a_voter_leaves_a_quorum_that_has_lost_what_was_committed() -> None:
    """Two of three disks were replaced by empty ones under the same names."""
    async with running_quorum(is_static=True) as cluster:
        leader = await cluster.commit("committed")
        await cluster.wait_until_equal()
        kept = cluster.members[leader.id % 3 + 1]
        cluster.isolate(kept.id)
        others = [number for number in (1, 2, 3) if number != kept.id]
        for number in others:
            await cluster.kill(number)
            cluster.wipe(number)
        for number in others:
            await cluster.start(number)
        # Each election has a later epoch.
        while (other := await cluster.wait_for_leader()).quorum.leader_epoch <= (
            kept.quorum.leader_epoch
        ):
            await cluster.stop(other.id)
            await cluster.start(other.id)
        await other.commit("something else")
        cluster.heal()
        await until(lambda: bool(kept.failures))
        assert "everything before" in kept.failures[0]
        assert kept.values.keys() == {"committed"}
        with pytest.raises(KafkaError):
            await kept.quorum.answer(
                FetchSnapshotRequest(
                    replica=cluster.voter(other.id).key,
                    epoch=LeaderEpoch(1),
                    snapshot=FIRST_POSITION,
                    position=0,
                    max_bytes=1,
                )
            )
