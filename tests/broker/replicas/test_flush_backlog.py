"""A client that filled the flush backlog is served again when the next flush round begins."""

import pytest
from broker.connection_server import Client, Server, serving
from support.waiting import until

from moldau.broker.metrics.counters import HELD_BACK
from moldau.broker.replicas.flush_backlog import BACKLOG_BYTES_MAX, SMALL_BYTES
from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

ROUNDS = 20


class Appending:
    """Each request appends as many bytes as its member id says."""

    def __init__(self) -> None:
        self.served: list[int] = []
        self.server: Server | None = None

    def __call__(self, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        assert self.server is not None
        self.server.flush_backlog.add(ctx.peer, int(request.member_id))
        self.served.append(request.generation_id)
        return HeartbeatResponse()


async def test_a_client_that_fills_the_backlog_waits_for_rounds_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    appending = Appending()
    async with serving(appending) as server:
        appending.server = server
        client = await Client.to(server)
        for number in range(ROUNDS):
            client.send(number, str(BACKLOG_BYTES_MAX))
        for number in range(ROUNDS):
            await client.answer()
            assert appending.served == list(range(number + 1))
            server.clock.advance(100)
            server.flush_backlog.round_began()
        server.clock.advance(1_000)
        await until(lambda: server.metrics.held_back.by_kind["disk"] > 0)
        assert "it sends records faster than the disk writes them" in caplog.text
        # The kinds in /metrics.
        assert {*server.metrics.held_back.by_kind} <= {*HELD_BACK}


async def test_clients_that_append_little_are_served_despite_a_full_backlog() -> None:
    appending = Appending()
    async with serving(appending) as server:
        appending.server = server
        greedy, modest = await Client.to(server), await Client.to(server)
        greedy.send(1, str(BACKLOG_BYTES_MAX))
        await greedy.answer()
        greedy.send(2, "1")
        modest.send(3, str(SMALL_BYTES))
        await modest.answer()
        modest.send(4, "1")
        await modest.answer()
        # Now it has appended more than a little.
        modest.send(5, "1")
        greedy.send(6, "1")
        assert appending.served == [1, 3, 4]
        server.flush_backlog.round_began()
        await modest.answer()
        await greedy.answer()
        await greedy.answer()
        assert sorted(appending.served[3:]) == [2, 5, 6]


async def test_a_connection_that_ends_while_it_waits_is_forgotten_at_once() -> None:
    appending = Appending()
    async with serving(appending) as server:
        appending.server = server
        kept = 0
        for number in range(3):
            client = await Client.to(server)
            client.send(number, str(BACKLOG_BYTES_MAX))
            client.send(100 + number, "1")
            await client.answer()
            kept = max(kept, server.flush_backlog.waiting_count)
            server.listener.drop_connections()
            await until(lambda: server.listener.connection_count == 0)
            assert server.flush_backlog.waiting_count == 0
        assert kept == 1
        server.flush_backlog.round_began()
        other = await Client.to(server)
        other.send(3, "1")
        await other.answer()
        assert appending.served == [0, 1, 2, 3]
