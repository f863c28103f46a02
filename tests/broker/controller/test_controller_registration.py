"""A controller registers at the active one, and does not repeat itself for nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from broker.controller.scripted_controller import (
    Answer,
    ScriptedController,
    refused,
    scripted_controller,
)
from broker.controller.test_controller_channel import Leader
from broker.data_node import ConfigHolder
from support.waiting import take_turns, until

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller.controller_channel import ActiveControllerChannel, Route
from moldau.broker.controller.registration import ControllerRegistration
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.loader import CommittedBatch
from moldau.net.clock import ShiftedClock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.log_records import FeatureLevelRecord, RegisterControllerRecord
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "2",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
INCARNATION = Uuid(b"i" * 16)
DONE = refused(ErrorCode.NONE)
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
OTHER = FeatureLevelRecord(name="group.version", feature_level=1)
OWN = RegisterControllerRecord(controller_id=2, incarnation_id=INCARNATION)
TWIN = RegisterControllerRecord(controller_id=2, incarnation_id=Uuid(b"t" * 16))


@dataclass
class Registering:
    active: ScriptedController
    clock: ShiftedClock = field(default_factory=ShiftedClock)
    feed: MetadataFeed = field(default_factory=MetadataFeed)

    def commit(self, record: Message) -> None:
        """The record arrives in this controller's metadata."""
        offset = Offset(self.feed.image.offset + 1)
        self.feed.on_committed(CommittedBatch(offset, offset, LeaderEpoch(1), 0, [record]))
        self.feed.on_commits_end()

    async def attempts(self) -> int:
        """The number of requests so far."""
        await take_turns()
        return len(self.active.requests)

    async def has_sent(self, count: int) -> None:
        await until(lambda: len(self.active.requests) == count)
        await take_turns()


@asynccontextmanager
async def registering(*answers: Answer) -> AsyncIterator[Registering]:
    async with scripted_controller(*answers) as active:
        made = Registering(active)
        config = BrokerConfig.parse(CONTROLLER)
        leader = Leader()
        leader.is_at(active.address)
        route = Route(
            node_id=BrokerId(2), quorum=leader, settings=ConfigHolder(config), clock=made.clock
        )
        channel = ActiveControllerChannel(route, "registration")
        registration = ControllerRegistration(config, INCARNATION, channel, made.feed, made.clock)
        registration.start()
        try:
            yield made
        finally:
            await registration.close()
            channel.close()
            made.clock.close()


async def test_a_registration_is_not_repeated_while_its_record_is_on_the_way() -> None:
    async with registering(DONE, DONE) as node:
        node.commit(LEVEL)
        await node.has_sent(1)
        node.commit(OTHER)
        node.clock.advance(5_000)
        assert await node.attempts() == 1
        node.commit(OWN)
        node.clock.advance(20_000)
        assert await node.attempts() == 1
        # Another process has the same id.
        node.commit(TWIN)
        await node.has_sent(2)


async def test_a_record_that_does_not_arrive_is_requested_again() -> None:
    async with registering(DONE, DONE) as node:
        node.commit(LEVEL)
        await node.has_sent(1)
        node.clock.advance(10_001)
        await node.has_sent(2)


async def test_a_refused_registration_is_repeated_ever_more_rarely() -> None:
    denied = refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with registering(*[denied] * 10) as node:
        node.commit(LEVEL)
        for sent in range(1, 9):
            await node.has_sent(sent)
            node.clock.advance(10_000)
        await node.has_sent(9)
        node.clock.advance(4_000)
        assert await node.attempts() == 9
        node.clock.advance(6_001)
        await node.has_sent(10)
