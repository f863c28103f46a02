"""The controller of a node becomes active and inactive with the leadership of the quorum. Nothing
of an earlier leadership is left.
"""

import asyncio
from pathlib import Path

import pytest
from broker.controller_bench import Bench, bench

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.types import NO_LEADER, BrokerId

SESSION_MS = 9_000
NEWEST = 7
OTHER = BrokerId(2)
OWN = BrokerId(1)


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def lose_and_regain(node: Bench, *, heard_of: BrokerId = OTHER) -> None:
    """As the quorum tells it. The log is that of the only voter all the time."""
    node.controller.on_leader_change(node.quorum.leader_epoch, heard_of)
    node.controller.on_leader_change(node.quorum.leader_epoch, OWN)


async def refusal(node: Bench) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await node.controller.handle(create("t"), NEWEST)
    return refused.value.code


async def test_a_controller_decides_only_while_it_leads(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        for leader in (OTHER, NO_LEADER):
            node.controller.on_leader_change(node.quorum.leader_epoch, leader)
            assert not node.controller.is_active
            assert await refusal(node) is ErrorCode.NOT_CONTROLLER
            node.controller.on_leader_change(node.quorum.leader_epoch, OWN)
            assert node.controller.is_active
        answer = await node.ask(create("t"))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE]
        node.check()


async def test_brokers_are_not_fenced_by_a_controller_that_does_not_lead(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await node.lifecycle.close()
        node.controller.on_leader_change(node.quorum.leader_epoch, OTHER)
        appended = node.quorum.last_offset
        node.clock.advance(10 * SESSION_MS)
        await asyncio.sleep(0)
        assert node.quorum.last_offset == appended
        node.controller.on_leader_change(node.quorum.leader_epoch, OWN)
        assert not node.image.brokers[1].is_fenced


async def test_a_broker_has_a_full_session_at_the_new_controller(tmp_path: Path) -> None:
    """The controller has heard nothing of it while another one led."""
    async with bench(tmp_path / "data") as node:
        await node.lifecycle.close()
        node.controller.on_leader_change(node.quorum.leader_epoch, OTHER)
        node.clock.ahead_ms += 10 * SESSION_MS
        node.controller.on_leader_change(node.quorum.leader_epoch, OWN)
        heartbeat = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=node.lifecycle.broker_epoch,
            current_metadata_offset=node.image.offset,
        )
        assert (await node.ask(heartbeat)).is_fenced is False
        node.clock.advance(SESSION_MS + SESSION_MS // 4)
        await node.feed.wait_until(lambda image: image.brokers[1].is_fenced)


async def test_a_decision_that_was_begun_in_an_earlier_leadership_is_not_appended(
    tmp_path: Path,
) -> None:
    """It was made in a thread meanwhile."""
    async with bench(tmp_path / "data") as node:
        deciding = asyncio.ensure_future(node.controller.handle(create("large", 200), NEWEST))
        await asyncio.sleep(0)
        lose_and_regain(node)
        with pytest.raises(KafkaError) as refused:
            await deciding
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert "large" not in node.controller.image.topics
        assert (await node.ask(create("large", 200))).topics[0].error_code == ErrorCode.NONE
        node.check()


async def test_what_was_decided_and_not_committed_is_forgotten(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        waiting = asyncio.ensure_future(node.controller.handle(create("t"), NEWEST))
        await asyncio.sleep(0)
        assert "t" in node.controller.image.topics
        node.controller.on_leader_change(node.quorum.leader_epoch, OTHER)
        committed = node.image
        node.controller.on_leader_change(node.quorum.leader_epoch, OWN)
        assert node.controller.image is committed
        await waiting
