"""Groups over real logs: responses are durable, and groups that are led elsewhere are refused."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from broker.data_node import batch
from broker.group_node import OFFSETS_TOPIC_NUMBER, running_groups
from support.proofs import proves
from support.waiting import take_turns

from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.core.groups.group_shard import EXPIRY_GROUPS_MAX
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.types import Offset


async def test_a_group_forms_and_survives_a_restart(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        a = await node.new_member("g")
        assert (a.error_code, a.generation_id, a.leader) == (0, 1, a.member_id)
        synced = await node.sync("g", a, mine=b"all of it")
        assert synced.assignment == b"all of it"
        assert await node.commit_offset("g", 17, a) == ErrorCode.NONE
        await node.restart()
        await node.groups.wait_loaded()
        assert await node.heartbeat("g", a) == ErrorCode.NONE
        assert (await node.sync("g", a)).assignment == b"all of it"
        assert await node.fetch_offset("g") == 17
        described: DescribeGroupsResponse = await node.ask(DescribeGroupsRequest(groups=["g"]))
        assert described.groups[0].group_state == "Stable"
        assert described.groups[0].members[0].client_host == "/127.0.0.1"


async def test_an_acknowledged_commit_survives_a_crash(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        for offset in range(20):
            assert await node.commit_offset("g", offset) == ErrorCode.NONE
        await node.crash()
        node.clock = type(node.clock)()
        await node.start()
        await node.groups.wait_loaded()
        assert await node.fetch_offset("g") == 19


async def test_commits_of_the_same_moment_share_a_batch(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        codes = await asyncio.gather(
            *(node.commit_offset("g", number, partition=number % 4) for number in range(40))
        )
        assert set(codes) == {ErrorCode.NONE}
        partition = node.replicas.lookup(CONSUMER_OFFSETS, node.groups.partition_for("g"))
        batches = list(iterate_batches(partition.log.read(Offset(0), 1 << 20).records))
        assert [batch.record_count for batch in batches] == [40]
        assert await node.fetch_offset("g", partition=3) == 39


async def test_a_fetch_sees_every_commit_that_came_before_it(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        commit = asyncio.ensure_future(node.commit_offset("g", 5))
        await asyncio.sleep(0)
        assert await node.fetch_offset("g") == 5
        assert await commit == ErrorCode.NONE


async def test_a_session_ends_without_heartbeats(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        a = await node.new_member("g")
        await node.sync("g", a)
        for _ in range(2):
            node.clock.advance(9_000)
            await take_turns()
            assert await node.heartbeat("g", a) == ErrorCode.NONE
        node.clock.advance(10_001)
        await take_turns()
        assert await node.heartbeat("g", a) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_shard_that_is_led_elsewhere_refuses_and_is_loaded_again(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "3000"}
    async with running_groups(tmp_path, settings=settings) as node:
        index = node.groups.partition_for("g")
        assert await node.commit_offset("g", 1) == ErrorCode.NONE
        a = await node.join("g")
        waiting = asyncio.ensure_future(node.join("g", a.member_id, rebalance_timeout_ms=600_000))
        await asyncio.sleep(0)
        node.change_partition(OFFSETS_TOPIC_NUMBER, index, leader=-1)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert await node.commit_offset("g", 2) == ErrorCode.NOT_COORDINATOR
        assert await node.heartbeat("g", a) == ErrorCode.NOT_COORDINATOR
        node.change_partition(OFFSETS_TOPIC_NUMBER, index, leader=1)
        assert (await node.join("g")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await node.heartbeat("g", a) == ErrorCode.NONE, "while loading"
        await node.groups.wait_loaded()
        assert await node.fetch_offset("g") == 1


async def test_others_have_their_turn_between_the_shards_that_are_loaded(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        by_shard = {node.groups.partition_for(f"g{n}"): f"g{n}" for n in range(50)}
        assert len(by_shard) == 4
        for group in by_shard.values():
            assert await node.commit_offset(group, 1) == ErrorCode.NONE
        await node.restart()
        loaded = [0]
        while loaded[-1] < len(by_shard):
            await asyncio.sleep(0)
            loaded.append(sum(node.groups.count_by_state().values()))
        assert max(after - before for before, after in pairwise(loaded)) == 1


async def test_no_request_waits_for_an_unloaded_shard(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        assert await node.commit_offset("g", 1) == ErrorCode.NONE
        await node.restart()
        waiting = asyncio.ensure_future(node.groups.wait_loaded())
        await node.groups.stop()
        await waiting


async def test_a_damaged_record_fails_its_shard_and_no_other(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        others = [f"g{n}" for n in range(50)]
        index = node.groups.partition_for("g")
        other = next(name for name in others if node.groups.partition_for(name) != index)
        assert await node.commit_offset(other, 3) == ErrorCode.NONE
        partition = node.replicas.lookup(CONSUMER_OFFSETS, index)
        result = partition.append(batch(b"\x00\x03 no such value", key=b"\x00\x02\x00\x01g"))
        await partition.wait_committed(result.last_offset)
        await node.restart()
        await node.groups.wait_loaded()
        assert await node.commit_offset("g", 1) == ErrorCode.NOT_COORDINATOR
        assert await node.fetch_offset(other) == 3


async def test_offsets_of_a_deleted_topic_go(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        node.create_topic("u", number=2)
        assert await node.commit_offset("g", 1, topic="u") == ErrorCode.NONE
        assert await node.commit_offset("g", 2, topic="t") == ErrorCode.NONE
        node.delete_topic(2)
        node.create_topic("u", number=3)
        assert await node.fetch_offset("g", topic="u") == -1
        assert await node.fetch_offset("g", topic="t") == 2
        await node.restart()
        await node.groups.wait_loaded()
        assert await node.fetch_offset("g", topic="u") == -1


async def test_groups_are_listed_and_deleted(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        for name in ("a", "b", "c"):
            assert await node.commit_offset(name, 1) == ErrorCode.NONE
        member = await node.new_member("busy")
        await node.sync("busy", member)
        listed: ListGroupsResponse = await node.ask(ListGroupsRequest())
        assert sorted((g.group_id, g.group_state, g.group_type) for g in listed.groups) == [
            ("a", "Empty", "classic"),
            ("b", "Empty", "classic"),
            ("busy", "Stable", "classic"),
            ("c", "Empty", "classic"),
        ]
        some: ListGroupsResponse = await node.ask(
            ListGroupsRequest(states_filter=["stable"], types_filter=["CLASSIC"])
        )
        assert [g.group_id for g in some.groups] == ["busy"]
        deleted: DeleteGroupsResponse = await node.ask(
            DeleteGroupsRequest(groups_names=["a", "b", "busy", "missing", "a"])
        )
        assert {r.group_id: r.error_code for r in deleted.results} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.NONE,
            "busy": ErrorCode.NON_EMPTY_GROUP,
            "missing": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        await node.restart()
        await node.groups.wait_loaded()
        left: ListGroupsResponse = await node.ask(ListGroupsRequest())
        assert sorted(g.group_id for g in left.groups) == ["busy", "c"]
        assert node.groups.count_by_state() == {"Empty": 1, "Stable": 1}
        assert node.groups.member_count() == 1
        assert list(node.groups.committed_offsets(9)) == [("c", "t", 0, 1)]


async def test_a_log_that_refuses_leaves_no_trace(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        node.configure(CONSUMER_OFFSETS, max_message_bytes="200")
        big = await node.join("g", protocols={"range": bytes(100)}, version=3)
        assert big.error_code == 0
        synced = await node.sync("g", big, mine=bytes(300))
        assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await node.heartbeat("g", big) == ErrorCode.REBALANCE_IN_PROGRESS
        node.configure(CONSUMER_OFFSETS, max_message_bytes="100000")
        again = await node.join("g", big.member_id, protocols={"range": bytes(100)})
        assert (await node.sync("g", again, mine=bytes(300))).error_code == 0


async def test_responses_wait_for_the_commit_but_not_for_ever(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        node.delete_topic(OFFSETS_TOPIC_NUMBER)
        # The other replica never fetches, so nothing is ever committed.
        node.create_topic(CONSUMER_OFFSETS, number=OFFSETS_TOPIC_NUMBER, replicas=(1, 2))
        commit = asyncio.ensure_future(node.commit_offset("g", 5))
        fetch = asyncio.ensure_future(node.ask(_fetch_all("g"), 9))
        await take_turns()
        assert not commit.done()
        assert not fetch.done()
        node.clock.advance(6_000)
        assert await commit == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await fetch).groups[0].error_code == ErrorCode.NOT_COORDINATOR


def _fetch_all(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


@proves("offsets.topic.compression.codec")
@pytest.mark.parametrize("codec", list(Compression))
async def test_records_are_packed_according_to_the_settings(
    tmp_path: Path, codec: Compression
) -> None:
    settings = {"offsets.topic.compression.codec": str(codec.value)}
    async with running_groups(tmp_path, settings=settings) as node:
        assert await node.commit_offset("g", 5) == ErrorCode.NONE
        partition = node.replicas.lookup(CONSUMER_OFFSETS, node.groups.partition_for("g"))
        (batch_,) = iterate_batches(partition.log.read(Offset(0), 1 << 20).records)
        assert batch_.compression is codec
        await node.restart()
        await node.groups.wait_loaded()
        assert await node.fetch_offset("g") == 5


async def test_unused_offsets_expire(tmp_path: Path) -> None:
    settings = {"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "60000"}
    async with running_groups(tmp_path, settings=settings) as node:
        # More groups in one shard than are checked in one turn.
        names = [f"g{number}" for number in range(5 * EXPIRY_GROUPS_MAX)]
        names = [name for name in names if node.groups.partition_for(name) == 0]
        assert len(names) > EXPIRY_GROUPS_MAX
        codes = await asyncio.gather(*(node.commit_offset(name, 1) for name in names))
        assert set(codes) == {ErrorCode.NONE}
        node.clock.advance(50 * 60_000)
        assert await node.commit_offset("kept", 1) == ErrorCode.NONE
        node.clock.advance(11 * 60_000)
        for _ in range(1_000):
            await asyncio.sleep(0)
            if node.groups.count_by_state() == {"Empty": 1}:
                break
        await node.restart()
        await node.groups.wait_loaded()
        assert [place[0] for place in node.groups.committed_offsets(9)] == ["kept"]


@proves("group.coordinator.append.linger.ms")
async def test_commits_linger_according_to_the_settings(tmp_path: Path) -> None:
    settings = {"group.coordinator.append.linger.ms": "50000"}
    async with running_groups(tmp_path, settings=settings) as node:
        commit = asyncio.ensure_future(node.commit_offset("g", 5))
        for _ in range(50):
            await asyncio.sleep(0)
        partition = node.replicas.lookup(CONSUMER_OFFSETS, node.groups.partition_for("g"))
        assert partition.log.log_end_offset == 0
        node.clock.advance(50_000)
        assert await commit == ErrorCode.NONE


async def test_turns_do_not_interleave_when_an_append_commits_at_once(tmp_path: Path) -> None:
    """The high watermark may pass many waiting records in one step."""
    patient = {"offsets.commit.timeout.ms": "600000"}
    async with running_groups(tmp_path, settings=patient) as node:
        node.delete_topic(OFFSETS_TOPIC_NUMBER)
        node.create_topic(CONSUMER_OFFSETS, number=OFFSETS_TOPIC_NUMBER, replicas=(1, 2))
        commits = []
        for number in range(2_000):
            commits.append(asyncio.ensure_future(node.commit_offset("g", number)))
            await asyncio.sleep(0)
        members = [asyncio.ensure_future(node.join("h", version=3)) for _ in range(3)]
        await asyncio.sleep(0)
        partition = node.replicas.lookup(CONSUMER_OFFSETS, 0)
        node.change_partition(OFFSETS_TOPIC_NUMBER, 0, isr=[1])
        assert {await commit for commit in commits} == {ErrorCode.NONE}
        assert await node.fetch_offset("g") == 1_999
        assert len({(await member).generation_id for member in members}) == 1
        assert partition.log.high_watermark == partition.log.log_end_offset
