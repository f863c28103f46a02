"""A node without limits in its settings has some, and reserves the last places for its peers."""

from broker.connection_server import Client, Outcome, Server, StillClock, echo, serving
from support.waiting import take_turns, until

from moldau.broker.server.connection_limits import CONNECTION_BYTES, ConnectionLimits
from moldau.broker.server.context import RequestContext
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import Clock
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

FLOOD = 20
STRANGER, OTHER = "192.0.2.1", "192.0.2.2"


def limits(possible: int, **settings: str) -> ConnectionLimits:
    properties = standalone_properties("unused", host="127.0.0.1", port=0)
    properties |= {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.parse(properties)
    return ConnectionLimits(lambda: config, Clock(), possible)


def taken_by(host: str, limits: ConnectionLimits, *, is_privileged: bool = False) -> int:
    """The number of connections it gets."""
    count = 0
    while limits.refusal(host, is_privileged=is_privileged) is None:
        limits.opened(host)
        count += 1
    return count


def test_one_address_leaves_room_for_others_and_all_of_them_for_peers() -> None:
    some = limits(100)
    assert taken_by(STRANGER, some) == 81
    assert taken_by(OTHER, some) == 9
    assert taken_by(OTHER, some, is_privileged=True) == 10


def test_clients_cannot_take_the_connections_of_other_nodes_with_max_connections() -> None:
    some = limits(100, max_connections="5")
    assert taken_by(STRANGER, some) == 5
    assert some.refusal(OTHER) is not None
    assert taken_by(OTHER, some, is_privileged=True) == 95


def test_connections_are_limited_by_memory() -> None:
    some = limits(1_000_000, moldau_inflight_bytes_max=str(1000 * CONNECTION_BYTES))
    assert taken_by(STRANGER, some) + taken_by(OTHER, some) == 968
    refusal = some.refusal(OTHER)
    assert refusal is not None
    assert "moldau.inflight.bytes.max" in refusal.reason


async def taken(server: Server) -> list[Client]:
    """Every place that one address can have."""
    clients: list[Client] = []
    metrics = server.metrics
    while not metrics.connections_refused:
        clients.append(await Client.to(server))
        await until(lambda: metrics.connections_made + metrics.connections_refused == len(clients))
    return clients[:-1]


async def test_a_silent_connection_makes_room_when_there_is_none() -> None:
    async with serving(echo, possible="20") as server:
        clients = await taken(server)
        assert len(clients) == 16
        server.clock.advance(11_000)
        for client in clients[1:]:
            client.send(1)
            await client.answer()
        newcomer = await Client.to(server)
        newcomer.send(2)
        assert (await newcomer.answer())[0] == 2
        assert await clients[0].is_closed()
        assert server.metrics.held_back.by_kind["connections"] == 1
        # No other connection is silent.
        assert await (await Client.to(server)).is_closed()


async def flood(server: Server, count: int = FLOOD) -> list[Client]:
    """New connections of clients, all at once. Each sends a request."""
    clients = [await Client.to(server) for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(number)
    return clients


def noting(requests: list[int]) -> Outcome:
    """Adds the number of each request that is served."""

    def outcome(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        requests.append(request.generation_id)
        return echo(ctx, request)

    return outcome


async def served(client: Client) -> None:
    client.send(1)
    assert (await client.answer())[0] == 1


def clock() -> StillClock:
    """No connection was made in the last second."""
    return StillClock(60_000)


async def test_a_flood_of_clients_does_not_delay_other_nodes() -> None:
    async with serving(echo, clock(), max_connection_creation_rate="1") as server:
        await flood(server)
        await served(await Client.to(server, as_peer=True))


async def test_the_listener_of_other_nodes_has_a_rate_of_its_own() -> None:
    limit = {"listener_name_controller_max_connection_creation_rate": "1"}
    requests: list[int] = []
    async with serving(noting(requests), clock(), **limit) as server:
        await served(await Client.to(server, as_peer=True))
        second = await Client.to(server, as_peer=True)
        second.send(2)
        await until(lambda: server.peers.connection_count == 2)
        await served(await Client.to(server))
        await take_turns()
        assert requests == [1, 1]
        server.clock.advance(1_000)
        assert (await second.answer())[0] == 2


async def test_a_flood_delays_the_connections_of_other_listeners_by_a_second_at_most() -> None:
    async with serving(echo, clock(), max_connection_creation_rate="1") as server:
        await flood(server)
        newcomer = await Client.to(server, at=server.external)
        await until(lambda: server.external.connection_count == 1)
        server.clock.advance(1_000)
        await served(newcomer)


async def test_each_connection_of_a_flood_waits_for_its_turn() -> None:
    requests: list[int] = []
    async with serving(noting(requests), clock(), max_connection_creation_rate="1") as server:
        clients = await flood(server, 4)
        await until(lambda: server.listener.connection_count == 4)
        for number, client in enumerate(clients):
            assert (await client.answer())[0] == number
            await take_turns()
            assert requests == list(range(number + 1))
            server.clock.advance(1_000)


async def test_a_connection_that_was_closed_while_it_waited_needs_no_turn() -> None:
    async with serving(echo, clock(), max_connection_creation_rate="1") as server:
        clients = [await Client.to(server) for _ in range(4)]
        await until(lambda: server.listener.connection_count == 4)
        for client in clients[1:3]:
            client.writer.transport.abort()
        await until(lambda: server.listener.connection_count == 2)
        server.clock.advance(1_000)
        await served(clients[3])


async def test_only_so_many_connections_wait_for_their_turn() -> None:
    settings = {"max_connection_creation_rate": "1", "socket_listen_backlog_size": "3"}
    async with serving(echo, clock(), **settings) as server:
        clients = await taken(server)
        assert len(clients) == 1 + 3
        server.clock.advance(1_000)
        await served(clients[1])
        newcomer = await Client.to(server)
        await until(lambda: server.listener.connection_count == 5)
        for client in clients[2:]:
            server.clock.advance(1_000)
            await served(client)
        server.clock.advance(1_000)
        await served(newcomer)
