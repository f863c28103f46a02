"""Connections share the node's time: one that sends much at once waits after those that send
little.

Every request takes a millisecond of the node's clock, so that the result is an order.
"""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from broker.connection_server import Client, Server, StillClock, serving
from support.waiting import until

from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

FLOOD = 5_000
NEWCOMER = "newcomer"


class Served:
    """The connections that were served, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.server: Server | None = None

    def __call__(self, _ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        assert self.server is not None
        self.server.clock.ahead_ms += 1
        self.names.append(request.member_id)
        return HeartbeatResponse()

    def before(self, name: str) -> int:
        return self.names.index(name)


async def flooding(server: Server, name: str) -> Client:
    client = await Client.to(server)
    for number in range(FLOOD):
        client.send(number, name)
    return client


async def test_a_flood_of_requests_keeps_another_client_waiting_for_a_turn_only() -> None:
    served = Served()
    async with serving(served) as server:
        served.server = server
        other = await Client.to(server)
        client = await flooding(server, "flood")
        other.send(1, NEWCOMER)
        await other.answer()
        assert served.before(NEWCOMER) < 20
        answers = [await client.answer() for _ in range(FLOOD)]
        assert [number for number, _ in answers] == list(range(FLOOD))


async def test_a_newcomer_does_not_wait_for_all_flooding_clients() -> None:
    served = Served()
    async with serving(served) as server:
        served.server = server
        other = await Client.to(server)
        floods = [await flooding(server, f"flood-{number}") for number in range(50)]
        await until(lambda: len(set(served.names)) == len(floods))
        began = len(served.names)
        other.send(1, NEWCOMER)
        await other.answer()
        assert served.before(NEWCOMER) - began < 30


async def test_flooding_clients_get_equal_shares() -> None:
    served = Served()
    async with serving(served, StillClock()) as server:
        served.server = server
        for number in range(4):
            await flooding(server, f"flood-{number}")
        await until(lambda: len(set(served.names)) == 4)
        began = len(served.names)
        await until(lambda: len(served.names) >= began + 4_000)
        shares = Counter(served.names[began : began + 4_000])
        assert max(shares.values()) - min(shares.values()) < 100


async def test_many_clients_with_one_long_request_each_leave_the_loop_time_to_poll() -> None:
    served = Served()
    async with serving(served) as server:
        served.server = server
        clients = [await Client.to(server) for _ in range(200)]
        for number, client in enumerate(clients):
            client.send(number, "one of many")
        while len(served.names) < len(clients):
            before = len(served.names)
            await asyncio.sleep(0)
            assert len(served.names) - before < 30
        for client in clients:
            await client.answer()


async def test_other_threads_have_a_chance_after_every_busy_turn() -> None:
    served = Served()
    async with serving(served) as server:
        served.server = server
        chances: list[int] = []
        server.turns.after_each = lambda: chances.append(len(served.names))
        client = await flooding(server, "flood")
        for _ in range(FLOOD):
            await client.answer()
        between = [after - before for before, after in pairwise([0, *chances, FLOOD])]
        # A request takes a millisecond, a turn five.
        assert max(between) < 20


async def test_a_client_that_persistently_takes_more_than_its_share_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = Served()
    async with serving(served) as server:
        served.server = server
        client = await flooding(server, "flood")
        port = client.writer.get_extra_info("sockname")[1]
        await until(lambda: server.metrics.held_back.by_kind["time"] > 0)
        assert f"127.0.0.1:{port} ('test') is held back" in caplog.text
        for _ in range(FLOOD):
            await client.answer()
        # Once, not with every check.
        assert caplog.text.count("is held back") == 1
