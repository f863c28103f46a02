"""The active controller of a cluster with many partitions: what looks at all of them is decided in
a thread, and appended in pieces.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.controller_bench import Bench, bench
from broker.gated_threads import gated_threads
from support.waiting import take_turns, until

from moldau.core.controller.decision_size import PARTITIONS_AT_ONCE
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.types import NO_LEADER, BrokerId

SESSION_MS = 9_000
STEP_MS = 1_000
OWN, OTHER = BrokerId(1), BrokerId(2)


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


@asynccontextmanager
async def many_partitions(path: Path, partitions: int) -> AsyncIterator[Bench]:
    """The only broker leads them all. It sends no heartbeats of its own any more."""
    async with bench(path / "data", {"request.timeout.ms": "600000"}) as node:
        await node.ask(create("many", partitions))
        await node.lifecycle.close()
        yield node
        await node.quorum.wait_committed(node.quorum.last_offset)
        node.check()


def heartbeat(node: Bench, *, want_fence: bool = False) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=node.lifecycle.broker_epoch,
        current_metadata_offset=node.image.offset,
        want_fence=want_fence,
    )


def leaders(node: Bench) -> list[BrokerId]:
    return [each.leader for each in node.image.topics["many"].partitions.values()]


async def pass_session(node: Bench) -> None:
    for _ in range(SESSION_MS // STEP_MS + 3):
        node.clock.advance(STEP_MS)
        await take_turns()


async def test_a_broker_that_falls_silent_is_fenced_outside_of_the_event_loop(
    tmp_path: Path,
) -> None:
    """No other decision is made meanwhile; requests come first then."""
    async with many_partitions(tmp_path, PARTITIONS_AT_ONCE + 1) as node:
        with gated_threads() as threads:
            await pass_session(node)
            gate = threads.gates.get_nowait()
            small = asyncio.ensure_future(node.ask(create("small")))
            await take_turns()
            assert not node.controller.image.brokers[1].is_fenced
            assert not small.done()
            gate.set()
            answer = await small
            # No broker is left that could lead it.
            assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert set(leaders(node)) == {NO_LEADER}
            assert threads.gates.empty()


async def test_a_few_partitions_are_decided_about_at_once(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, PARTITIONS_AT_ONCE) as node:
        with gated_threads() as threads:
            await pass_session(node)
            assert node.controller.image.brokers[1].is_fenced
            assert threads.gates.empty()


async def test_a_heartbeat_that_is_heard_while_a_check_waits_saves_the_session(
    tmp_path: Path,
) -> None:
    """The check waits for a large decision, and so do the heartbeats."""
    async with many_partitions(tmp_path, PARTITIONS_AT_ONCE + 1) as node:
        with gated_threads() as threads:
            large = asyncio.ensure_future(node.ask(create("large", 100)))
            first = await threads.gates.get()
            assert (await node.ask(create("between"))).topics[0].error_code == ErrorCode.NONE
            first.set()
            gate = await threads.gates.get()
            await pass_session(node)
            heard = asyncio.ensure_future(node.ask(heartbeat(node)))
            await take_turns()
            gate.set()
            await large
            assert (await heard).is_fenced is False
            await take_turns()
            assert not node.controller.image.brokers[1].is_fenced
            assert threads.gates.empty()


async def test_a_heartbeat_that_changes_nothing_is_answered_at_once(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, PARTITIONS_AT_ONCE + 1) as node:
        with gated_threads() as threads:
            assert (await node.ask(heartbeat(node))).error_code == ErrorCode.NONE
            assert threads.gates.empty()


@pytest.mark.usefixtures("tiny_slices")
async def test_records_of_a_large_decision_are_appended_between_other_work(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, 4 * PARTITIONS_AT_ONCE) as node:
        seen = {node.quorum.last_offset}
        fencing = asyncio.ensure_future(node.ask(heartbeat(node, want_fence=True)))
        while not fencing.done():
            seen.add(node.quorum.last_offset)
            await asyncio.sleep(0)
        response = await fencing
        assert isinstance(response, BrokerHeartbeatResponse)
        assert response.is_fenced
        assert len(seen) > 4
        assert set(leaders(node)) == {NO_LEADER}


async def begin_fencing(node: Bench) -> asyncio.Future[object]:
    """Returns when a part of the records is in the log."""
    before = node.quorum.last_offset
    fencing: asyncio.Future[object] = asyncio.ensure_future(
        node.controller.handle(heartbeat(node, want_fence=True), 1)
    )
    await until(lambda: node.quorum.last_offset > before)
    assert not node.controller.image.brokers[1].is_fenced
    assert not fencing.done()
    return fencing


@pytest.mark.usefixtures("tiny_slices")
async def test_no_decision_is_made_between_the_pieces_of_another(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, 4 * PARTITIONS_AT_ONCE) as node:
        fencing = await begin_fencing(node)
        answer = await node.ask(create("small"))
        assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        await fencing


@pytest.mark.usefixtures("tiny_slices")
async def test_a_client_that_gives_up_leaves_no_half_of_a_decision(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, 4 * PARTITIONS_AT_ONCE) as node:
        fencing = await begin_fencing(node)
        fencing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fencing
        assert node.controller.image.brokers[1].is_fenced
        await node.quorum.wait_committed(node.quorum.last_offset)
        assert set(leaders(node)) == {NO_LEADER}


@pytest.mark.usefixtures("tiny_slices")
async def test_a_leadership_that_ends_between_two_pieces_appends_no_more(tmp_path: Path) -> None:
    async with many_partitions(tmp_path, 4 * PARTITIONS_AT_ONCE) as node:
        fencing = await begin_fencing(node)
        node.controller.on_leader_change(node.quorum.leader_epoch, OTHER)
        end = node.quorum.last_offset
        with pytest.raises(KafkaError) as refused:
            await fencing
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert node.quorum.last_offset == end
        await node.quorum.wait_committed(end)
        node.controller.on_leader_change(node.quorum.leader_epoch, OWN)
        assert not node.controller.image.brokers[1].is_fenced
        assert NO_LEADER in leaders(node)
        assert 1 in leaders(node)
