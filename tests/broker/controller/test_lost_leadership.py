"""A controller that loses its leadership while a request waits: it was decided and appended, and
only the next leader knows whether its records stay.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from broker.metadata_node import CLUSTER
from broker.quorum.quorum_cluster import Member, QuorumCluster
from support.waiting import take_turns, until

from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.node.settings import Settings
from moldau.core.controller.features import SUPPORTED_FEATURES
from moldau.core.controller.machine import Controller
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest
from moldau.protocol.messages.broker_registration import Feature as BrokerFeature
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.wire.schema import Message
from moldau.testing.simulated_faults import Effect
from moldau.types import Uuid

BROKER = 7
VERSIONS = {ControllerRegistrationRequest: 0, IncrementalAlterConfigsRequest: 1}


def change(*, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    """A setting of all brokers."""
    value = AlterableConfig(name="log.retention.ms", value="12345")
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="", configs=[value]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def register(node_id: int) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(controller_id=node_id, incarnation_id=Uuid(b"i" * 16))


async def register_broker(node: ControllerNode) -> None:
    request = BrokerRegistrationRequest(
        broker_id=BROKER,
        cluster_id=CLUSTER,
        incarnation_id=Uuid(b"b" * 16),
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[Uuid(b"d" * 16)],
    )
    registered: Any = await node.handle(request, 4)
    epoch = registered.broker_epoch
    heartbeat = BrokerHeartbeatRequest(
        broker_id=BROKER, broker_epoch=epoch, current_metadata_offset=epoch
    )
    answer: Any = await node.handle(heartbeat, 1)
    assert not answer.is_fenced


@dataclass
class Controllers:
    cluster: QuorumCluster
    nodes: dict[int, ControllerNode] = field(default_factory=dict)

    def assemble(self, member: Member) -> None:
        machine = Controller(member.config, CLUSTER, Random(member.id))
        settings = Settings(member.config)
        node = ControllerNode(member.quorum, member.feed, settings, member.clock, machine)
        member.quorum.add_listener(node)
        self.nodes[member.id] = node

    async def active(self) -> Member:
        """The leader, when its first records are committed and the others wait for more."""
        await until(lambda: any(each.is_active for each in self.nodes.values()))
        member = await self.cluster.wait_for_leader()
        await self.cluster.wait_until_equal()
        await take_turns()
        return member

    def cut_acknowledgements(self, leader: Member) -> None:
        """Later appends reach the others, whose acknowledgements do not arrive."""
        others = set(self.cluster.members) - {leader.id}
        self.cluster.faults.cut |= {(other, leader.id) for other in others}

    async def outcome(self, leader: Member, request: Message) -> ErrorCode:
        with pytest.raises(KafkaError) as failed:
            await self.nodes[leader.id].handle(request, VERSIONS[type(request)])
        return failed.value.code


@asynccontextmanager
async def controllers() -> AsyncIterator[Controllers]:
    cluster = QuorumCluster()
    made = Controllers(cluster)
    cluster.on_assembled = made.assemble
    try:
        await cluster.start_all()
        yield made
    finally:
        for node in made.nodes.values():
            node.close()
        await cluster.close()


async def test_a_change_that_the_next_leader_may_commit_is_not_called_undone() -> None:
    """With NOT_CONTROLLER the broker would repeat it, and undo what others have changed since."""
    async with controllers() as made:
        leader = await made.active()
        made.cut_acknowledgements(leader)
        with pytest.raises(KafkaError) as failed:
            await made.nodes[leader.id].handle(change(), 1)
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "it may still happen" in failed.value.detail
        made.cluster.heal()
        successor = await made.cluster.wait_for_leader(other_than=leader.id)
        # It did happen here.
        await until(lambda: successor.values.get("log.retention.ms") == "12345")


async def test_what_was_not_appended_or_may_be_repeated_is_refused() -> None:
    async with controllers() as made:
        leader = await made.active()
        made.cut_acknowledgements(leader)
        requests = [change(), change(validate_only=True), register(leader.id)]
        codes = await asyncio.gather(*(made.outcome(leader, each) for each in requests))
        # The second decision is based on the first, whose fate it shares.
        again = ErrorCode.NOT_CONTROLLER
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, again, again]
        assert await made.outcome(leader, change()) is ErrorCode.NOT_CONTROLLER


async def test_a_change_that_was_appended_in_part_is_not_called_undone() -> None:
    """The leader finds between two batches that it was cut off for too long."""
    async with controllers() as made:
        leader = await made.active()
        node = made.nodes[leader.id]
        await register_broker(node)
        topic = CreatableTopic(name="t", num_partitions=1_500, replication_factor=1)
        await node.handle(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        before = leader.quorum.last_offset

        def pause(effect: Effect) -> None:
            if effect.kind == "append" and effect.path.endswith(".log"):
                leader.clock.ahead_ms = 60_000

        leader.disk.on_effect(pause)
        with pytest.raises(KafkaError) as failed:
            await node.handle(UnregisterBrokerRequest(broker_id=BROKER), 0)
        assert 0 < leader.quorum.last_offset - before < 1_500
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
