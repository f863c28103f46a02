"""The quorum's requests over TCP: every request has one event, the right one, whatever the other
side does.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from broker.metadata_node import CLUSTER, config_for
from client.strange_server import answer, next_request, strange_server
from support.proofs import proves
from support.waiting import take_turns, until

from moldau.broker.quorum.voter_connections import VoterConnections
from moldau.core.quorum import rpc
from moldau.core.quorum.events import NotDelivered, Responded
from moldau.core.quorum.messages.translation import response_message
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import Destination, Failure
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.net.clock import ShiftedClock
from moldau.net.request_channel import Address
from moldau.protocol import messages as m
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from moldau.protocol.wire.frame import RequestFrame
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

LISTENER = "CONTROLLER"
LEADERSHIP = rpc.Leadership(LeaderEpoch(5), BrokerId(2), (VoterEndpoint(LISTENER, "two", 2),))
ME = VoterKey(BrokerId(1), Uuid(b"d" * 16))
VOTE = rpc.VoteRequest(
    epoch=LeaderEpoch(4), candidate=ME, last=LogPosition(LeaderEpoch(3), Offset(9))
)
PRE_VOTE = replace(VOTE, is_pre_vote=True)
GRANTED = rpc.VoteResponse(leadership=LEADERSHIP, is_granted=True)
QUORUM_APIS = (ApiKey.VOTE, ApiKey.API_VERSIONS, ApiKey.FETCH)

Served = dict[ApiKey, tuple[int, int]]


def served_by_default() -> Served:
    found: Served = {}
    for api_key in QUORUM_APIS:
        versions = API_VERSIONS[api_key].controller
        assert versions is not None
        found[api_key] = versions
    return found


@dataclass
class Peer:
    """Another node: it answers ApiVersions, and the rest as a test wishes."""

    behave: "Callable[[Peer, RequestFrame], Awaitable[bytes | None]]"
    served: Served = field(default_factory=served_by_default)
    requests: list[RequestFrame] = field(default_factory=list)
    connections: int = 0
    ended: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = True
        try:
            while True:
                request = await next_request(reader)
                if is_first:
                    assert request.api_key is ApiKey.API_VERSIONS
                    writer.write(answer(request, self.versions()))
                    is_first = False
                    continue
                self.requests.append(request)
                content = await self.behave(self, request)
                if content is None:
                    break
                writer.write(content)
        finally:
            self.ended += 1

    def versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.served.items()
            ],
            supported_features=[
                SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            ],
        )


async def grant(_peer: Peer, request: RequestFrame) -> bytes:
    message = response_message(GRANTED, m.VoteRequest(), request.version, LISTENER)
    return answer(request, message)


async def hang_up(_peer: Peer, _request: RequestFrame) -> None:
    return None


async def stay_silent(_peer: Peer, _request: RequestFrame) -> bytes:
    return b""


class Outcome:
    """The events of one VoterConnections."""

    def __init__(self, network: VoterConnections, clock: ShiftedClock) -> None:
        self.network = network
        self.clock = clock
        self.events: list[Responded | NotDelivered] = []
        self._correlation = 0

    def send(self, address: Address, request: rpc.Request = VOTE, node_id: int = 2) -> int:
        self._correlation += 1
        self.network.send(Destination(node_id, *address), self._correlation, request)
        return self._correlation

    async def after(self, count: int) -> list[Responded | NotDelivered]:
        await until(lambda: len(self.events) >= count)
        return self.events

    async def asked(
        self, address: Address, request: rpc.Request = VOTE
    ) -> Responded | NotDelivered:
        """The event of one request."""
        count = len(self.events)
        self.send(address, request)
        assert len(self.events) == count, "no event comes from within send"
        return (await self.after(count + 1))[-1]


@asynccontextmanager
async def connections(path: Path, **settings: Any) -> AsyncIterator[Outcome]:
    config = config_for(path, {name.replace("_", "."): value for name, value in settings.items()})
    clock = ShiftedClock()
    network = VoterConnections(config, CLUSTER, clock)
    outcome = Outcome(network, clock)
    network.start(outcome.events.append)
    try:
        yield outcome
    finally:
        await network.close()
        clock.close()


async def test_requests_share_a_connection(tmp_path: Path) -> None:
    peer = Peer(grant)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        for correlation in range(1, 6):
            assert await here.asked(address) == Responded(correlation, GRANTED)
    assert peer.connections == 1
    for request in peer.requests:
        assert (request.api_key, request.version) == (ApiKey.VOTE, 2)
        assert request.header.client_id == "raft-client-1"


async def test_a_request_has_the_newest_version_that_both_know(tmp_path: Path) -> None:
    for served, version in (((0, 0), 0), ((0, 1), 1), ((1, 9), 2)):
        peer = Peer(grant, {ApiKey.VOTE: served})
        async with strange_server(peer.serve) as address, connections(tmp_path) as here:
            event = await here.asked(address)
        assert isinstance(event, Responded)
        assert [each.version for each in peer.requests] == [version]


async def test_a_node_that_is_older_does_not_know_every_request(tmp_path: Path) -> None:
    peer = Peer(grant, {ApiKey.VOTE: (0, 1)})
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        fetch = rpc.FetchRequest(
            replica=ME,
            epoch=LeaderEpoch(1),
            position=LogPosition(LeaderEpoch(1), Offset(1)),
            max_bytes=1,
            max_wait_ms=1,
        )
        for request in (PRE_VOTE, fetch, rpc.RemoveVoterRequest(voter=ME)):
            event = await here.asked(address, request)
            assert isinstance(event, NotDelivered)
            assert event.failure is Failure.UNSUPPORTED
        # The connection is as good as before.
        assert isinstance(await here.asked(address), Responded)
    assert (peer.connections, len(peer.requests)) == (1, 1)


async def test_a_new_voter_says_what_it_supports(tmp_path: Path) -> None:
    async def describe(peer: Peer, request: RequestFrame) -> bytes:
        return answer(request, peer.versions())

    peer = Peer(describe)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        event = await here.asked(address, rpc.ApiVersionsRequest())
    assert event == Responded(1, rpc.ApiVersionsResponse(kraft_versions=(0, 1)))


def nobody_listens() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Address("127.0.0.1", server.getsockname()[1])


@pytest.mark.parametrize(
    ("address", "failure"),
    [
        (None, Failure.REFUSED),
        (Address("no-such-host.invalid", 9093), Failure.LOST),
        (Address("x" * 300, 9093), Failure.LOST),
        (Address("a\0b", 9093), Failure.LOST),
        (Address("ü..", 9093), Failure.LOST),
    ],
    ids=["refused", "unknown", "long", "zero byte", "empty label"],
)
async def test_only_a_refused_connection_shows_that_a_process_has_ended(
    tmp_path: Path, address: Address | None, failure: Failure
) -> None:
    async with connections(tmp_path) as here:
        event = await here.asked(address or nobody_listens())
    assert event == NotDelivered(1, failure)


async def test_a_broken_connection_is_made_again(tmp_path: Path) -> None:
    peer = Peer(hang_up)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        for correlation in (1, 2):
            assert await here.asked(address) == NotDelivered(correlation, Failure.LOST)
        peer.behave = grant
        assert await here.asked(address) == Responded(3, GRANTED)
    assert peer.connections == 3


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00\x00"])
async def test_what_is_not_a_kafka_node_is_lost(tmp_path: Path, greeting: bytes) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)

    async with strange_server(greet) as address, connections(tmp_path) as here:
        assert await here.asked(address) == NotDelivered(1, Failure.LOST)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, Failure.LOST),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, Failure.LOST),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Failure.LOST),
        (ErrorCode.UNSUPPORTED_VERSION, Failure.UNSUPPORTED),
        (ErrorCode.NONE, Failure.LOST),
    ],
)
async def test_an_answer_without_the_partition_is_no_response(
    tmp_path: Path, code: ErrorCode, failure: Failure
) -> None:
    async def refuse(_peer: Peer, request: RequestFrame) -> bytes:
        return answer(request, m.VoteResponse(error_code=code))

    peer = Peer(refuse)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        assert await here.asked(address) == NotDelivered(1, failure)
        peer.behave = grant
        assert await here.asked(address) == Responded(2, GRANTED)
    assert peer.connections == 1


async def test_a_newer_request_does_not_wait_for_an_older_one(tmp_path: Path) -> None:
    """The older one's answer must not be taken for the newer one's, however late it comes."""
    may_answer = asyncio.Event()

    async def first_late(peer: Peer, request: RequestFrame) -> bytes:
        if len(peer.requests) == 1:
            await may_answer.wait()
            late = rpc.VoteResponse(leadership=rpc.Leadership(LeaderEpoch(99)))
            return answer(request, response_message(late, m.VoteRequest(), 2, LISTENER))
        return await grant(peer, request)

    peer = Peer(first_late)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        here.send(address)
        await until(lambda: len(peer.requests) == 1)
        here.send(address)
        assert await here.after(1) == [Responded(2, GRANTED)]
        may_answer.set()
        await until(lambda: peer.ended == 1)
        assert await here.asked(address) == Responded(3, GRANTED)
    assert here.events == [Responded(2, GRANTED), Responded(3, GRANTED)]
    assert peer.connections == 2


async def test_of_requests_that_wait_for_the_connection_the_last_is_sent(tmp_path: Path) -> None:
    peer = Peer(grant)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        for _ in range(5):
            here.send(address)
        assert await here.after(1) == [Responded(5, GRANTED)]
    assert (peer.connections, len(peer.requests)) == (1, 1)


async def test_requests_to_other_nodes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    silent, quick = Peer(stay_silent), Peer(grant)
    async with (
        strange_server(silent.serve) as first,
        strange_server(quick.serve) as second,
        connections(tmp_path) as here,
    ):
        here.send(first, node_id=2)
        await until(lambda: len(silent.requests) == 1)
        for _ in range(3):
            count = len(here.events)
            here.send(second, node_id=3)
            await here.after(count + 1)
    assert here.events == [Responded(number, GRANTED) for number in (2, 3, 4)]


async def test_a_node_that_has_moved_is_found_at_its_new_address(tmp_path: Path) -> None:
    old, new = Peer(grant), Peer(grant)
    async with (
        strange_server(old.serve) as first,
        strange_server(new.serve) as second,
        connections(tmp_path) as here,
    ):
        await here.asked(first)
        await here.asked(second)
        # Its place is not taken by the answer of the old address either.
        old.behave = stay_silent
        here.send(first)
        await until(lambda: len(old.requests) == 2)
        await here.asked(second)
        await until(lambda: old.ended == 2)
    assert [each.correlation for each in here.events] == [1, 2, 4]
    assert (old.connections, new.connections) == (2, 2)


@proves("controller.quorum.request.timeout.ms")
async def test_a_node_that_does_not_answer_is_lost(tmp_path: Path) -> None:
    peer = Peer(stay_silent)
    settings = {"controller_quorum_request_timeout_ms": "7000"}
    async with (
        strange_server(peer.serve) as address,
        connections(tmp_path, **settings) as here,
    ):
        here.send(address)
        await until(lambda: len(peer.requests) == 1)
        here.clock.advance(6_900)
        await take_turns()
        assert here.events == []
        here.clock.advance(100)
        assert await here.after(1) == [NotDelivered(1, Failure.LOST)]


class Crowded:
    """A listener that accepts nothing, and whose queue is full: further attempts hang."""

    def __init__(self) -> None:
        self._server = socket.socket()
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(0)
        self.address = Address("127.0.0.1", self._server.getsockname()[1])
        self._waiting = [self._attempt() for _ in range(3)]

    def _attempt(self) -> socket.socket:
        waiting = socket.socket()
        waiting.setblocking(False)
        waiting.connect_ex(self.address)
        return waiting

    def close(self) -> None:
        for each in (*self._waiting, self._server):
            each.close()


@pytest.fixture
def crowded() -> Iterable[Address]:
    server = Crowded()
    yield server.address
    server.close()


@proves("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms")
async def test_an_attempt_to_connect_takes_longer_after_each_failure(
    tmp_path: Path, crowded: Address
) -> None:
    settings = {
        "socket_connection_setup_timeout_ms": "1000",
        "socket_connection_setup_timeout_max_ms": "3000",
    }
    async with connections(tmp_path, **settings) as here:
        for number, timeout_ms in enumerate((1_000, 2_000, 3_000, 3_000), 1):
            here.clock.advance(500)
            here.send(crowded)
            await take_turns()
            here.clock.advance(timeout_ms - 200)
            await take_turns()
            assert len(here.events) == number - 1, timeout_ms
            here.clock.advance(200)
            assert (await here.after(number))[-1] == NotDelivered(number, Failure.LOST)


async def test_a_request_that_is_too_old_is_not_sent(tmp_path: Path) -> None:
    """The machine has given it up while the connection was made."""
    may_answer = asyncio.Event()
    peer = Peer(grant)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await next_request(reader)
        await may_answer.wait()
        writer.write(answer(request, peer.versions()))
        peer.requests.append(await next_request(reader))
        writer.write(await grant(peer, peer.requests[-1]))

    async with strange_server(slow) as address, connections(tmp_path) as here:
        here.send(address)
        await take_turns()
        # Not yet for the request for the versions, which was sent later.
        here.clock.ahead_ms += 2_000
        may_answer.set()
        assert await here.after(1) == [NotDelivered(1, Failure.LOST)]
        assert await here.asked(address) == Responded(2, GRANTED)
    assert len(peer.requests) == 1


async def test_attempts_to_connect_are_not_made_in_a_hurry(tmp_path: Path) -> None:
    """The first failure is reported at once, the next one after a pause."""
    address = nobody_listens()
    async with connections(tmp_path) as here:
        assert await here.asked(address) == NotDelivered(1, Failure.REFUSED)
        for number, pause_ms in enumerate((50, 100, 200, 400, 500, 500), 2):
            here.clock.ahead_ms += pause_ms
            assert await here.asked(address) == NotDelivered(number, Failure.REFUSED)


async def test_only_so_many_connections_are_kept(tmp_path: Path) -> None:
    peer = Peer(stay_silent)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        for node_id in range(100, 200):
            here.send(address, node_id=node_id)
        await until(lambda: len(peer.requests) == 100)
        assert here.events == []
        here.send(address, node_id=200)
        assert await here.after(1) == [NotDelivered(1, Failure.LOST)]
        await until(lambda: peer.ended == 1)


async def test_nothing_comes_after_the_end(tmp_path: Path) -> None:
    peer = Peer(stay_silent)
    async with strange_server(peer.serve) as address, connections(tmp_path) as here:
        here.send(address, node_id=2)
        await until(lambda: len(peer.requests) == 1)
        here.send(address, node_id=3)
        here.send(nobody_listens(), node_id=4)
        await here.network.close()
        here.send(address, node_id=5)
        await until(lambda: peer.ended == peer.connections)
        await take_turns()
        assert here.events == []
