"""Members of a group, ours and of other clients together: each partition has one reader, and what
was consumed is committed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from client.clusters import cluster_of, fresh_topic, partitions_of, write
from clients.aiokafka_library import AiokafkaLibrary
from clients.confluent_library import ConfluentLibrary
from clients.kafka_python_library import KafkaPythonLibrary
from clients.libraries import ConsumerOptions, Library
from clients.members import Member

from moldau.client.admin.groups import (
    Committed,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
    describe_group,
    list_groups,
)
from moldau.client.admin.topics import add_partitions
from moldau.client.cluster import Cluster
from moldau.client.errors import ClientError
from moldau.client.fetcher import FetchOptions
from moldau.client.group_member import GroupOptions
from moldau.client.readers import GroupReader
from moldau.client.start_positions import Place, StartAt
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

WAIT_S = 60


def reader(cluster: Cluster, group: str, topic: str) -> GroupReader:
    return GroupReader(
        cluster,
        GroupOptions(group_id=group, topics=[topic], heartbeat_ms=50),
        StartAt(Place.BEGINNING),
        FetchOptions(max_wait_ms=20),
    )


async def drive(member: GroupReader, until: Callable[[], bool]) -> list[bytes | None]:
    """Read and consume until a condition holds."""
    found: list[bytes | None] = []
    async with asyncio.timeout(WAIT_S):
        while not until():
            fetched = await member.next(20)
            if fetched is not None:
                found += [record.value for record in fetched.records()]
                await member.consumed(fetched.partition, fetched.next_offset)
    return found


async def test_a_group_goes_on_where_it_stopped(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster:
        await write(cluster, topic, [b"1", b"2"])
        found: list[bytes | None] = []
        for expected in ([b"1", b"2"], [b"3"]):
            async with reader(cluster, topic, topic) as member:
                await drive(member, lambda: member.is_assigned)
                found = await drive_records(member, len(expected))
            assert found == expected
            await write(cluster, topic, [b"3"])
        committed = await committed_offsets(cluster, topic)
    assert committed[TopicPartition(topic, 0)].offset == 3


async def drive_records(member: GroupReader, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            fetched = await member.next(20)
            if fetched is not None:
                found += [record.value for record in fetched.records()]
                await member.consumed(fetched.partition, fetched.next_offset)
    return found


async def test_two_members_share_and_one_takes_over(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 4)
    everything = set(partitions_of(topic, 4))
    async with (
        cluster_of(node) as cluster,
        cluster_of(node) as other_cluster,
        reader(cluster, topic, topic) as first,
    ):
        await drive(first, lambda: set(first.assigned) == everything)
        async with reader(other_cluster, topic, topic) as second:
            await asyncio.gather(
                drive(first, lambda: len(first.assigned) == 2 == len(second.assigned)),
                drive(second, lambda: len(first.assigned) == 2 == len(second.assigned)),
            )
            assert set(first.assigned) | set(second.assigned) == everything
            group = await describe_group(cluster, topic)
            assert group is not None
            assert (group.state, group.assignor) == ("Stable", "range")
            held = {one for member in group.members for one in member.assignment}
            assert held == everything
        await drive(first, lambda: set(first.assigned) == everything)


@pytest.mark.parametrize(
    "library",
    [ConfluentLibrary(), AiokafkaLibrary(), KafkaPythonLibrary()],
    ids=lambda library: library.name,
)
async def test_members_of_other_clients_share_a_group_with_ours(
    node: ThreadBroker, library: Library
) -> None:
    topic = fresh_topic(node, 4)
    everything = set(partitions_of(topic, 4))
    options = ConsumerOptions(group=topic)
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as ours:
        await drive(ours, lambda: set(ours.assigned) == everything)
        theirs = Member(library, node.bootstrap, [topic], options)
        try:
            await drive(ours, lambda: len(ours.assigned) == 2 == len(theirs.assignment))
            assert set(ours.assigned) | theirs.assignment == everything
        finally:
            await asyncio.gather(
                asyncio.to_thread(theirs.leave),
                drive(ours, lambda: set(ours.assigned) == everything),
            )


async def test_a_member_that_was_thought_dead_joins_again(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as member:
        await drive(member, lambda: member.is_assigned)
        await asyncio.to_thread(node.clock.advance, seconds=60)
        await write(cluster, topic, [b"still here"])
        assert await drive_records(member, 1) == [b"still here"]


@pytest.mark.parametrize(
    "error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"]
)
async def test_errors_of_the_coordinator_pass(node: ThreadBroker, error: str) -> None:
    topic = fresh_topic(node)
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
        if error != "REBALANCE_IN_PROGRESS" or api != "OffsetCommit":
            node.fail_next(api, error, times=2)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        await write(cluster, topic, [b"1"])
        async with reader(cluster, topic, topic) as member:
            assert await drive_records(member, 1) == [b"1"]
        assert (await committed_offsets(cluster, topic))[TopicPartition(topic, 0)].offset == 1


async def test_an_error_that_ends_a_membership_is_raised(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as member:
        await drive(member, lambda: member.is_assigned)
        node.fail_next("Heartbeat", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await drive(member, lambda: False)


async def test_an_interrupted_member_commits_and_leaves(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster:
        await write(cluster, topic, [b"1", b"2", b"3"])

        async def read_for_ever() -> None:
            async with cluster_of(node) as own, reader(own, topic, topic) as member:
                found = await drive_records(member, 3)
                assert len(found) == 3
                done.set()
                await drive(member, lambda: False)

        done = asyncio.Event()
        reading = asyncio.ensure_future(read_for_ever())
        await done.wait()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        group = await describe_group(cluster, topic)
        assert group is not None
        assert group.members == ()
        assert (await committed_offsets(cluster, topic))[TopicPartition(topic, 0)].offset == 3


async def test_partitions_that_are_added_get_a_reader(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as member:
        await drive(member, lambda: member.is_assigned)
        await add_partitions(cluster, topic, 3)
        await drive(member, lambda: set(member.assigned) == set(partitions_of(topic, 3)))


async def test_a_group_of_another_kind_is_told(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    node.fail_next("JoinGroup", "INCONSISTENT_GROUP_PROTOCOL")
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as member:
        with pytest.raises(ClientError, match="share none of our assignors"):
            await member.next(20)


async def test_offsets_of_an_inactive_group_are_moved_and_forgotten(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    zero, one = partitions_of(topic, 2)
    async with cluster_of(node) as cluster:
        wanted = {zero: Committed(5, metadata="note"), one: Committed(7)}
        await commit_offsets(cluster, topic, wanted)
        found = await committed_offsets(cluster, topic)
        assert {key: (value.offset, value.metadata) for key, value in found.items()} == {
            zero: (5, "note"),
            one: (7, ""),
        }
        assert await delete_offsets(cluster, topic, [zero]) == {zero: None}
        assert set(await committed_offsets(cluster, topic)) == {one}
        assert topic in [group.group_id for group in await list_groups(cluster)]
        assert await delete_groups(cluster, [topic]) == {topic: None}
        assert await describe_group(cluster, topic) is None


async def test_an_active_group_is_not_deleted(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    async with cluster_of(node) as cluster, reader(cluster, topic, topic) as member:
        await drive(member, lambda: member.is_assigned)
        outcome = (await delete_groups(cluster, [topic, "never-there"])).values()
    codes = [error.code for error in outcome if error is not None]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
