"""Requests to the active controller over the network: it is found, asked again where that is safe,
and never waited for without a bound.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker.controller.scripted_controller import (
    closes,
    done,
    refused,
    scripted_controller,
)
from broker.data_node import ConfigHolder
from broker.gated_threads import gated_threads
from broker.node.test_node import node_with
from support.proofs import proves
from support.waiting import take_turns, until

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.cluster.topic_creation import TopicCreation
from moldau.broker.controller.controller_channel import (
    ActiveControllerChannel,
    ClientRequestChannel,
    Route,
)
from moldau.broker.controller.envelope import Forwarded, unwrapped
from moldau.broker.server.context import Peer
from moldau.config.broker import BrokerConfig
from moldau.net.clock import Clock
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.wire.schema import Message
from moldau.types import NO_LEADER, BrokerId

BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
IN_FLIGHT = 64
SENT_MORE = 3
CLIENT = Peer(1, "PLAINTEXT", "10.1.2.3", 4, principal="User:alice", client_id="admin")


@dataclass
class Leader:
    """The quorum, as a broker sees it that is not among the voters."""

    leader_id: BrokerId = NO_LEADER
    leader_address: tuple[str, int] | None = None

    def is_at(self, address: tuple[str, int]) -> None:
        self.leader_id, self.leader_address = BrokerId(1), address


@dataclass
class Broker:
    leader: Leader
    route: Route
    channel: ActiveControllerChannel


@asynccontextmanager
async def broker(**settings: str) -> AsyncIterator[Broker]:
    given = BROKER | {name.replace("_", "."): value for name, value in settings.items()}
    leader, clock = Leader(), Clock()
    route = Route(
        node_id=BrokerId(2),
        quorum=leader,
        settings=ConfigHolder(BrokerConfig.parse(given)),
        clock=clock,
    )
    channel = ActiveControllerChannel(route, "test")
    try:
        yield Broker(leader, route, channel)
    finally:
        channel.close()
        clock.close()


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def allocated(_request: Message, _version: int) -> Message:
    return AllocateProducerIdsResponse(producer_id_start=7, producer_id_len=1)


async def test_a_broker_creates_a_topic_through_a_controller_in_another_node(
    tmp_path: Path,
) -> None:
    node = node_with(tmp_path)
    await node.start()
    try:
        async with broker() as ours:
            ours.leader.is_at(("127.0.0.1", node.ports["CONTROLLER"]))
            made: Any = await ours.channel.forward(create("t"), 7, CLIENT)
            again: Any = await ours.channel.send(create("t"))
            assert [topic.error_code for topic in made.topics] == [ErrorCode.NONE]
            topic = node.services.image.topic("t")
            assert topic is not None
            assert topic.topic_id == made.topics[0].topic_id
            assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    finally:
        await node.stop()


async def test_a_node_that_does_not_lead_any_more_is_asked_again() -> None:
    no_longer = refused(ErrorCode.NOT_CONTROLLER)
    async with scripted_controller(no_longer, no_longer, allocated) as controller, broker() as ours:
        ours.leader.is_at(controller.address)
        answer: Any = await ours.channel.send(AllocateProducerIdsRequest())
        assert answer.producer_id_start == 7
        assert len(controller.requests) == 3


async def test_an_envelope_that_reaches_another_node_is_sent_to_the_new_leader() -> None:
    async with broker() as ours, scripted_controller() as old, scripted_controller() as new:
        ours.leader.is_at(old.address)

        def elected_meanwhile(_request: Message, _version: int) -> Message:
            ours.leader.is_at(new.address)
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)

        old.answers.append(elected_meanwhile)
        new.answers.append(refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError) as failed:
            await ours.channel.forward(create("t"), 7, CLIENT)
        assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert [api for api, _ in (*old.requests, *new.requests)] == [ApiKey.ENVELOPE] * 2


async def test_a_change_is_not_sent_again_if_it_may_have_been_done() -> None:
    async with scripted_controller(closes, closes) as controller, broker() as ours:
        ours.leader.is_at(controller.address)
        for sending in (
            ours.channel.forward(create("t"), 7, CLIENT),
            ours.channel.send(create("t")),
        ):
            with pytest.raises(KafkaError) as failed:
                await sending
            assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert "may have done it" in failed.value.detail
        assert len(controller.requests) == 2


async def test_a_query_is_sent_again_after_a_lost_connection() -> None:
    def described(_request: Message, _version: int) -> Message:
        return DescribeQuorumResponse()

    async with scripted_controller(closes, described) as controller, broker() as ours:
        ours.leader.is_at(controller.address)
        await ours.channel.send(DescribeQuorumRequest())
        assert len(controller.requests) == 2


async def test_a_leader_that_is_elected_later_gets_the_request() -> None:
    async with scripted_controller(allocated) as controller, broker() as ours:
        waiting = asyncio.ensure_future(ours.channel.send(AllocateProducerIdsRequest()))
        await asyncio.sleep(0)
        ours.leader.is_at(controller.address)
        answer: Any = await waiting
        assert answer.producer_id_len == 1


@proves("request.timeout.ms")
async def test_without_a_controller_the_wait_is_bounded() -> None:
    async with broker(request_timeout_ms="200") as ours:
        with pytest.raises(KafkaError) as failed:
            await ours.channel.send(AllocateProducerIdsRequest())
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "there is no active controller" in failed.value.detail


@asynccontextmanager
async def frozen_controller() -> AsyncIterator[tuple[str, int]]:
    """Accepts connections and never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]


@proves("controller.socket.timeout.ms")
async def test_a_controller_that_does_not_answer_counts_as_lost() -> None:
    settings = {"controller_socket_timeout_ms": "100", "request_timeout_ms": "1000"}
    async with frozen_controller() as address, broker(**settings) as ours:
        ours.leader.is_at(address)
        with pytest.raises(KafkaError) as failed:
            await ours.channel.send(AllocateProducerIdsRequest())
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "no response in time" in failed.value.detail


async def test_a_request_does_not_wait_for_a_controller_that_has_a_successor() -> None:
    """The time-outs are Kafka's: half a minute."""

    def frozen(_request: Message, _version: int) -> None:
        ours.leader.is_at(new.address)
        old.freezes = True

    async with (
        scripted_controller() as old,
        scripted_controller(allocated) as new,
        broker() as ours,
    ):
        old.answers.append(frozen)
        ours.leader.is_at(old.address)
        with pytest.raises(KafkaError) as failed:
            await ours.channel.send(create("t"))
        assert "another node is the active controller now" in failed.value.detail
        answer: Any = await ours.channel.send(AllocateProducerIdsRequest())
        assert answer.producer_id_start == 7


async def test_requests_that_wait_for_their_turn_do_not_connect_to_a_former_controller() -> None:
    """The first one has begun to connect when another node is elected."""
    async with (
        frozen_controller() as old,
        scripted_controller(*[allocated] * 3) as new,
        broker(request_timeout_ms="5000") as ours,
    ):
        ours.leader.is_at(old)
        waiting = [
            asyncio.ensure_future(ours.channel.send(AllocateProducerIdsRequest())) for _ in range(3)
        ]
        await take_turns()
        ours.leader.is_at(new.address)
        answers: Any = await asyncio.gather(*waiting)
        assert [each.producer_id_start for each in answers] == [7] * 3
        assert new.connections == 1


async def test_requests_that_were_never_sent_are_sent_to_the_next_controller() -> None:
    """The connection has room for so many requests; the others wait."""
    async with (
        scripted_controller(closes) as old,
        scripted_controller(*[done] * SENT_MORE) as new,
        broker() as ours,
    ):
        old.freezes = True
        ours.leader.is_at(old.address)
        sending = [
            asyncio.ensure_future(ours.channel.send(create(f"t-{number}")))
            for number in range(IN_FLIGHT + SENT_MORE)
        ]
        await until(lambda: len(old.requests) == 1)
        await take_turns()
        ours.leader.is_at(new.address)
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        unknown = [each for each in outcomes if isinstance(each, KafkaError)]
        assert all("may have done it" in each.detail for each in unknown)
        assert len(unknown) == IN_FLIGHT
        assert len(new.requests) == SENT_MORE


async def test_a_closed_channel_opens_no_connection() -> None:
    async with scripted_controller() as controller, broker() as ours:

        def closed_meanwhile(request: Message, version: int) -> Message | None:
            ours.channel.close()
            return refused(ErrorCode.NOT_CONTROLLER)(request, version)

        controller.answers.append(closed_meanwhile)
        ours.leader.is_at(controller.address)
        for _ in range(2):
            with pytest.raises(KafkaError) as failed:
                await ours.channel.send(AllocateProducerIdsRequest())
            assert "the node is stopping" in failed.value.detail
        assert controller.connections == 1


async def test_a_channel_that_is_closed_while_it_connects_gives_up() -> None:
    async with frozen_controller() as address, broker() as ours:
        ours.leader.is_at(address)
        waiting = asyncio.ensure_future(ours.channel.send(AllocateProducerIdsRequest()))
        await take_turns()
        ours.channel.close()
        with pytest.raises(KafkaError) as failed:
            await waiting
        assert "the node is stopping" in failed.value.detail


async def test_a_large_request_is_encoded_and_its_response_decoded_in_a_thread() -> None:
    many = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=f"t-{number}", num_partitions=1, replication_factor=1)
            for number in range(5_000)
        ]
    )
    async with scripted_controller(done, done) as controller, broker() as ours:
        ours.leader.is_at(controller.address)
        await ours.channel.forward(create("small"), 7, CLIENT)
        with gated_threads() as threads:
            waiting = asyncio.ensure_future(ours.channel.forward(many, 7, CLIENT))
            encoding = await threads.gates.get()
            await take_turns()
            assert len(controller.requests) == 1
            encoding.set()
            decoding = await threads.gates.get()
            assert len(controller.requests) == 2
            assert not waiting.done()
            decoding.set()
            answer: Any = await waiting
        assert [each.name for each in answer.topics] == [each.name for each in many.topics]


async def test_a_client_whose_version_the_controller_does_not_serve_is_disconnected() -> None:
    """As in Kafka: its next ApiVersions tells it which versions there are."""
    async with (
        scripted_controller(refused(ErrorCode.UNSUPPORTED_VERSION)) as controller,
        broker() as ours,
    ):
        ours.leader.is_at(controller.address)
        with pytest.raises(MalformedRequestError, match="does not serve CREATE_TOPICS version 7"):
            await ours.channel.forward(create("t"), 7, CLIENT)


async def test_topics_are_created_automatically_on_behalf_of_the_client() -> None:
    """In the newest version that the controller serves, too."""
    forwarded: list[Forwarded] = []

    def envelope_of_client(request: Message, version: int) -> Message | None:
        assert isinstance(request, EnvelopeRequest)
        forwarded.append(unwrapped(request))
        return done(request, version)

    async with scripted_controller(envelope_of_client, done) as controller, broker() as ours:
        controller.newest[ApiKey.CREATE_TOPICS] = 5
        ours.leader.is_at(controller.address)
        creation = TopicCreation(ours.channel, ours.route.settings)
        assert await creation.ensure(["t"], CLIENT) == {"t": ErrorCode.NONE}
        (seen,) = forwarded
        assert (seen.principal, seen.host) == ("User:alice", "10.1.2.3")
        assert seen.request.header.client_id == "admin"
        assert (seen.request.api_key, seen.request.version) == (ApiKey.CREATE_TOPICS, 5)
        # Internal topics are created on behalf of this node.
        assert await creation.ensure(["__consumer_offsets"]) == {
            "__consumer_offsets": ErrorCode.NONE
        }
        assert controller.requests == [(ApiKey.ENVELOPE, 0), (ApiKey.CREATE_TOPICS, 5)]
        await creation.close()


async def test_the_versions_of_the_controller_are_known_while_it_is_connected() -> None:
    async with scripted_controller(allocated) as controller, broker() as ours:
        controller.newest[ApiKey.CREATE_TOPICS] = 5
        ours.leader.is_at(controller.address)
        assert ours.channel.served is None
        await ours.channel.send(AllocateProducerIdsRequest())
        assert ours.channel.served is not None
        assert ours.channel.served[ApiKey.CREATE_TOPICS] == (2, 5)
        ours.channel.close()
        assert ours.channel.served is None


async def test_a_connection_to_a_controller_that_has_a_successor_is_given_up() -> None:
    async with frozen_controller() as old, scripted_controller(allocated) as new, broker() as ours:
        ours.leader.is_at(old)
        waiting = asyncio.ensure_future(ours.channel.send(AllocateProducerIdsRequest()))
        await take_turns()
        ours.leader.is_at(new.address)
        answer: Any = await waiting
        assert answer.producer_id_start == 7


async def test_the_newest_version_is_used_that_both_sides_know() -> None:
    async with scripted_controller() as controller, broker() as ours:
        controller.newest[ApiKey.DESCRIBE_QUORUM] = 1
        controller.newest[ApiKey.ALLOCATE_PRODUCER_IDS] = -1
        controller.answers.append(refused(ErrorCode.NONE))
        ours.leader.is_at(controller.address)
        metadata = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
        )
        await ours.channel.send(DescribeQuorumRequest(topics=[metadata]))
        with pytest.raises(KafkaError) as failed:
            await ours.channel.send(AllocateProducerIdsRequest())
        assert failed.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert controller.requests == [(ApiKey.DESCRIBE_QUORUM, 1)]


async def test_the_broker_waits_a_while_for_its_own_metadata() -> None:
    """Here it never comes: the topic was created, and the answer says so."""

    async def caught_up() -> None:
        return None

    async with (
        scripted_controller(refused(ErrorCode.NONE)) as controller,
        broker(request_timeout_ms="300") as ours,
    ):
        ours.leader.is_at(controller.address)
        channel = ClientRequestChannel(ours.channel, ours.route, MetadataFeed(), caught_up)
        answer: Any = await channel.send(create("t"))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE]
