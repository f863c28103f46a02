"""A node without limits in its settings has some, and reserves the last places for its peers."""

from broker.connection_server import Client, Server, echo, serving
from support.waiting import until

from moldau.broker.server.connection_limits import CONNECTION_BYTES, ConnectionLimits
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import Clock

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
