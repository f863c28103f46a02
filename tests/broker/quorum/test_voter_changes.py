"""Voters are added and removed while the quorum works."""

import asyncio
import errno

import pytest
from broker.quorum.quorum_cluster import Member, QuorumCluster, running_quorum
from support.waiting import until

from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ChangeVotersResponse,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    Response,
)
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.control_records import ControlType
from moldau.testing.simulated_disk import Effect


async def add(cluster: QuorumCluster, number: int) -> ErrorCode:
    """Tries again while the leader has no time for it, for example for another change."""
    error = ErrorCode.REQUEST_TIMED_OUT
    while error is ErrorCode.REQUEST_TIMED_OUT:
        error = await try_to_add(cluster, number)
    is_late = error is ErrorCode.DUPLICATE_VOTER
    return ErrorCode.NONE if is_late else error


async def try_to_add(cluster: QuorumCluster, number: int) -> ErrorCode:
    leader = await cluster.wait_for_leader()
    voter = cluster.voter(number)
    request = AddVoterRequest(voter=voter.key, endpoints=voter.endpoints)
    return error_of(await leader.quorum.answer(request))


async def remove(cluster: QuorumCluster, number: int) -> ErrorCode:
    leader = await cluster.wait_for_leader()
    request = RemoveVoterRequest(voter=cluster.voter(number).key)
    return error_of(await leader.quorum.answer(request))


def error_of(response: object) -> ErrorCode:
    assert isinstance(response, ChangeVotersResponse)
    return response.error


def voters_of(member: Member) -> set[int]:
    return set(member.quorum.voters.by_id)


async def test_a_quorum_grows_from_one_to_three_and_shrinks_again() -> None:
    async with running_quorum(voters=1) as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("alone")
        for number in (2, 3):
            cluster.add_node(number)
            member = await cluster.start(number)
            await until(lambda member=member: "alone" in member.values)  # type: ignore[misc]
            assert not member.quorum.is_voter
            assert await add(cluster, number) is ErrorCode.NONE
        await cluster.wait_until_equal()
        assert [voters_of(each) for each in cluster.members.values()] == [{1, 2, 3}] * 3
        await cluster.kill(1)
        await cluster.commit("without the first")
        await cluster.start(1)
        await cluster.wait_until_equal()
        # Also a leader can be removed, and hands over.
        removed = await cluster.wait_for_leader()
        assert await remove(cluster, removed.id) is ErrorCode.NONE
        leader = await cluster.wait_for_leader(other_than=removed.id)
        await leader.commit("without the second")
        await cluster.wait_until_equal()
        assert not removed.quorum.is_voter
        assert "without the second" in removed.values
        other = next(iter(voters_of(leader) - {leader.id}))
        assert await remove(cluster, other) is ErrorCode.NONE
        await leader.commit("alone again")
        assert voters_of(leader) == {leader.id}


async def test_there_is_never_more_than_one_change_at_a_time() -> None:
    async with running_quorum(voters=1) as cluster:
        await cluster.commit("first")
        for number in (2, 3):
            cluster.add_node(number)
            member = await cluster.start(number)
            await until(lambda member=member: "first" in member.values)  # type: ignore[misc]
        assert await add(cluster, 2) is ErrorCode.NONE
        await cluster.wait_until_equal()
        # Neither of the others gets the record.
        cluster.isolate(2)

        def cut_after_versions(_node: int, request: Request, _response: Response) -> None:
            if isinstance(request, ApiVersionsRequest):
                cluster.faults.cut.add((1, 3))

        cluster.on_response = cut_after_versions
        adding = asyncio.ensure_future(try_to_add(cluster, 3))
        await until(lambda: voters_of(cluster.members[1]) == {1, 2, 3})
        assert await remove(cluster, 2) is not ErrorCode.NONE
        cluster.heal()
        # The request may have run out of time, but the record is in the log.
        assert await adding in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}
        await cluster.wait_until_equal()
        assert [voters_of(each) for each in cluster.members.values()] == [{1, 2, 3}] * 3


async def test_a_wiped_voter_is_an_observer_until_it_is_replaced() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("before")
        lost = leader.id % 3 + 1
        old = cluster.voter(lost)
        await cluster.kill(lost)
        cluster.add_node(lost)
        returned = await cluster.start(lost)
        await until(lambda: "before" in returned.values)
        assert cluster.voter(lost).key != old.key
        assert not returned.quorum.is_voter
        response = await leader.quorum.answer(RemoveVoterRequest(voter=old.key))
        assert error_of(response) is ErrorCode.NONE
        assert await add(cluster, lost) is ErrorCode.NONE
        await cluster.wait_until_equal()
        assert returned.quorum.is_voter


async def test_an_upgrade_is_refused_until_all_voters_have_reported_their_versions() -> None:
    async with running_quorum(is_static=True) as cluster:
        await cluster.kill(3)
        leader = await cluster.wait_for_leader()
        await leader.commit("by the other two")
        with pytest.raises(KafkaError) as refused:
            leader.quorum.raise_kraft_version(1)
        assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
        assert refused.value.detail == (
            "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters "
            "support it"
        )
        assert leader.quorum.kraft_version == 0


async def test_static_voters_become_dynamic_by_an_upgrade() -> None:
    async with running_quorum(is_static=True) as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("static")
        await cluster.wait_until_equal()

        def is_raised() -> bool:
            # The leader must have heard from all voters which versions they support.
            try:
                leader.quorum.raise_kraft_version(1)
            except KafkaError:
                return False
            return True

        await until(is_raised)
        await leader.commit("dynamic")
        await cluster.wait_until_equal()
        for number, member in cluster.members.items():
            assert member.quorum.kraft_version == 1
            assert cluster.voter(number).key in member.quorum.voters
        cluster.add_node(4)
        joined = await cluster.start(4)
        await until(lambda: "dynamic" in joined.values)
        assert await add(cluster, 4) is ErrorCode.NONE
        await cluster.kill(leader.id)
        await cluster.commit("after the upgrade")
        await cluster.start(leader.id)
        await cluster.wait_until_equal()
        assert cluster.members[leader.id].quorum.kraft_version == 1


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_snapshot_has_the_voters_of_its_own_end(is_committed: bool) -> None:
    """Not those that were added after it (CLUSTER finding 20)."""
    async with running_quorum(voters=1) as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("first")
        image = leader.feed.image
        for number in (2, 3):
            cluster.add_node(number)
            member = await cluster.start(number)
            await until(lambda member=member: "first" in member.values)  # type: ignore[misc]
        assert await add(cluster, 2) is ErrorCode.NONE
        if not is_committed:
            await cluster.wait_until_equal()
            image = leader.feed.image
            cluster.isolate(2)
        adding = asyncio.ensure_future(add(cluster, 3))
        await until(lambda: voters_of(leader) == {1, 2, 3})
        head = leader.quorum.snapshot_head(image)
        assert head is not None
        found = VoterSet.decode(dict(head.control_values)[ControlType.KRAFT_VOTERS])
        assert found.by_id.keys() == ({1} if is_committed else {1, 2})
        cluster.heal()
        assert await adding is ErrorCode.NONE


async def test_a_broker_observes_and_never_votes() -> None:
    async with running_quorum() as cluster:
        await cluster.commit("first")
        cluster.add_node(4)
        broker = await cluster.start(
            4,
            {
                "process.roles": "broker",
                "listeners": "PLAINTEXT://127.0.0.1:1004",
            },
        )
        await until(lambda: "first" in broker.values)
        killed = await cluster.wait_for_leader()
        await cluster.kill(killed.id)
        leader = await cluster.commit("second")
        await cluster.wait_until_equal()
        assert broker.values.keys() == {"first", "second"}
        assert broker.quorum.leader_address == ("127.0.0.1", leader.id)
        assert not broker.quorum.is_voter
        sent = {type(request) for sender, request in cluster.requests if sender == 4}
        assert sent == {FetchRequest}
        await cluster.kill(leader.id)
        await cluster.start(killed.id)
        await cluster.commit("third")
        await cluster.wait_until_equal()


async def test_a_full_disk_between_two_segments_loses_no_change_of_the_voters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One response spans segments of the follower, and only the first part of it was appended."""
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await leader.commit("before", "x" * 500)
        await cluster.wait_until_equal()
        await cluster.kill(late)
        cluster.add_node(4)
        await cluster.start(4)
        assert await add(cluster, 4) is ErrorCode.NONE
        for number in range(20):
            await leader.commit(f"after-{number}", "x" * 100)
        disk, created = cluster.disks[late], 0

        def refuse_the_second(effect: Effect) -> OSError | None:
            nonlocal created
            if effect.kind != "create" or not effect.path.endswith(".log"):
                return None
            created += 1
            return OSError(errno.ENOSPC, "full") if created == 2 else None

        disk.error_of = refuse_the_second
        returned = await cluster.start(late, {"internal.metadata.log.segment.bytes": "1000"})
        await cluster.wait_until_equal()
        assert "were refused" in caplog.text
        assert voters_of(returned) == {1, 2, 3, 4}
        assert returned.failures == []
