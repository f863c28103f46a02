"""A listener without a node: the test supplies the response to every request, and moves the
clock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from moldau.broker.handlers.table import broker_table
from moldau.broker.metrics.counters import Metrics
from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.broker.server.connection_limits import ConnectionLimits
from moldau.broker.server.context import BrokerServices, RequestContext
from moldau.broker.server.dispatch import Dispatcher
from moldau.broker.server.listener import Listener, ListenerServices
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.broker.server.turns import Turns
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import ShiftedClock
from moldau.net.tasks import Tasks
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.wire.frame import build_request, read_response
from moldau.protocol.wire.schema import Message

Outcome = Callable[[RequestContext, Any], Any]
VERSION = 4
DEADLINE_S = 30


class StillClock(ShiftedClock):
    """Only the test moves it: the machine's load does not count."""

    def mono_ms(self) -> float:
        return self.ahead_ms


class Server:
    def __init__(self, outcome: Outcome, clock: ShiftedClock, **settings: str) -> None:
        """`possible`: the number of connections that there are descriptors for."""
        possible = int(settings.pop("possible", 1_000_000))
        properties = standalone_properties("unused", host="127.0.0.1", port=0)
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.parse(properties)
        self.clock = clock
        self.tasks = Tasks()
        self.metrics = Metrics()
        self.budget = MemoryBudget(
            lambda: config.moldau_inflight_bytes_max, lambda: config.socket_request_max_bytes
        )
        self.turns = Turns()
        self.flush_backlog = FlushBacklog(clock)
        services = ListenerServices(
            clock=self.clock,
            tasks=self.tasks,
            metrics=self.metrics,
            limits=ConnectionLimits(lambda: config, self.clock, possible),
            budget=self.budget,
            turns=self.turns,
            flush_backlog=self.flush_backlog,
            config=lambda: config,
        )
        self.listener = Listener("PLAINTEXT", "127.0.0.1", 0, services)
        self.peers = Listener("CONTROLLER", "127.0.0.1", 0, services, is_privileged=True)
        """The listener for other nodes. They share everything else with the clients."""
        self.external = Listener("EXTERNAL", "127.0.0.1", 0, services)
        # No handler is reached: the interceptor supplies every response.
        self.dispatcher = Dispatcher(cast("BrokerServices", None), broker_table())
        self.dispatcher.interceptor = outcome
        self.clients: list[Client] = []


@asynccontextmanager
async def serving(
    outcome: Outcome, clock: ShiftedClock | None = None, /, **settings: str
) -> AsyncIterator[Server]:
    server = Server(outcome, clock or ShiftedClock(), **settings)
    listeners = (server.listener, server.peers, server.external)
    for listener in listeners:
        listener.bind()
        await listener.serve(server.dispatcher)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield server
    finally:
        for listener in listeners:
            listener.stop_accepting()
            listener.drop_connections()
        for client in server.clients:
            client.writer.transport.abort()
            with suppress(ConnectionError):
                await client.writer.wait_closed()
        await server.tasks.close()
        server.clock.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(
        cls, server: Server, *, as_peer: bool = False, at: Listener | None = None
    ) -> "Client":
        """`as_peer`: as another node does. `at` is the clients' listener by default."""
        listener = server.peers if as_peer else at or server.listener
        client = cls(*await asyncio.open_connection("127.0.0.1", listener.port))
        server.clients.append(client)
        return client

    def send(self, number: int, member_id: str = "", more: int = 0) -> None:
        """`more`: bytes after the request, which the server ignores."""
        request = HeartbeatRequest(group_id="g", generation_id=number, member_id=member_id)
        sent = b"".join(build_request(request, VERSION, correlation_id=number, client_id="test"))
        self.writer.write((len(sent) - 4 + more).to_bytes(4, "big") + sent[4:] + bytes(more))

    async def answer(self) -> tuple[int, Message]:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(size)
        return read_response(frame, HeartbeatResponse, VERSION)

    async def answered(self) -> int:
        """The correlation id of the next response, whatever its content."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return int.from_bytes((await self.reader.readexactly(size))[:4], "big")

    async def is_closed(self) -> bool:
        return await self.reader.read() == b""


def echo(_ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.generation_id)
