"""One listener: a bound address, its connections, and the limits that hold for them. Refused
connections are closed at once; the limits of the whole node are shared through `ConnectionLimits`.
"""

import asyncio
import logging
import math
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.broker.connection import Connection
from moldau.broker.context import Peer
from moldau.broker.dispatch import Dispatcher
from moldau.net.frames_in import SCRATCH_BYTES
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.broker.metrics import Metrics
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks

_log = logging.getLogger(__name__)

_SWEEP_MS = 1_000
_BACKLOG = 1024
_RETIREMENT_MS = 2_000
_COMPLAINTS_PER_SWEEP = 5
_LISTEN_AGAIN_SHARE = 0.8
_ANSWER_BYTES_MIN = 64 * 1024
_UNLIMITED = 2**31 - 1


class ByteBudget:
    """The bytes of requests and answers that all connections of a node hold together. When they are
    spent, connections stop reading until there is room again.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.held = 0
        self.answer_bytes = 0
        """Written to clients that have not read them yet."""
        self.read_limit()
        self._waiting: dict[Connection, None] = {}

    def read_limit(self) -> None:
        """The setting may have changed; asked for now and then, as every request needs it."""
        self._bytes_max = self._limit()

    def room_for_answer(self) -> int:
        """How large an answer should be at most that could also come in parts. The more lies
        unread, the less there is for each.
        """
        return max(self._limit() - self.answer_bytes, _ANSWER_BYTES_MIN)

    def hold(self, count: int) -> None:
        self.held += count
        if count < 0 and self._waiting and self.held < self._bytes_max * _LISTEN_AGAIN_SHARE:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                asyncio.get_running_loop().call_soon(connection.budget_is_back)

    def is_spent(self, connection: Connection) -> bool:
        if self.held < self._bytes_max:
            return False
        self._waiting[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)


class ConnectionLimits:
    """max.connections, max.connections.per.ip, how many the process has descriptors for, and how
    fast new ones may come.
    """

    def __init__(
        self, config: Callable[[], "BrokerConfig"], clock: "Clock", possible: int = _UNLIMITED
    ) -> None:
        self._config = config
        self._clock = clock
        self._possible = possible
        self._count = 0
        self._by_host: Counter[str] = Counter()
        self._next_free_ms: dict[str, float] = {}
        self._overrides: Mapping[str, int] = {}
        self._limits_by_address: Mapping[str, int] = {}

    def refusal(self, host: str) -> str | None:
        config = self._config()
        if self._count >= config.max_connections:
            return f"max.connections is {config.max_connections}"
        if self._count >= self._possible:
            return f"this process may open files for {self._possible}; raise its limit (ulimit -n)"
        allowed = self._overrides_of(config).get(host, config.max_connections_per_ip)
        if self._by_host[host] >= allowed:
            return f"max.connections.per.ip is {allowed}"
        return None

    def _overrides_of(self, config: "BrokerConfig") -> Mapping[str, int]:
        """max.connections.per.ip.overrides by address; names of hosts are looked up once."""
        overrides = config.connection_limits_by_host
        if overrides is not self._overrides:
            self._overrides = overrides
            self._limits_by_address = _by_address(overrides)
        return self._limits_by_address

    def delay_ms(self, listener: str) -> float:
        """How long a new connection must wait so that max.connection.creation.rate holds, that of
        the node and that of its listener.
        """
        config = self._config()
        of_listener = int(config.of_listener(listener, "max.connection.creation.rate"))
        return max(
            self._turn_in_ms("", config.max_connection_creation_rate),
            self._turn_in_ms(listener, of_listener),
        )

    def _turn_in_ms(self, queue: str, rate: int) -> float:
        if rate >= _UNLIMITED:
            return 0.0
        # 0 would keep everybody out for good, the operator who could undo it included.
        rate = max(rate, 1)
        now_ms = self._clock.mono_ms()
        # A second's worth may come at once.
        free_ms = max(self._next_free_ms.get(queue, 0.0), now_ms - 1_000) + 1_000 / rate
        self._next_free_ms[queue] = free_ms
        return max(free_ms - now_ms, 0.0)

    def joined(self, host: str) -> None:
        self._count += 1
        self._by_host[host] += 1

    def left(self, host: str) -> None:
        self._count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ListenerServices:
    """What all listeners of a node share."""

    clock: "Clock"
    tasks: "Tasks"
    metrics: "Metrics"
    limits: ConnectionLimits
    budget: ByteBudget
    config: Callable[[], "BrokerConfig"]


class Listener:
    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        services: ListenerServices,
        *,
        is_privileged: bool = False,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.clock = services.clock
        self.tasks = services.tasks
        self.metrics = services.metrics
        self.budget = services.budget
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.dispatcher: Dispatcher | None = None
        self._services = services
        self._is_privileged = is_privileged
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}
        self._made = 0
        self._complaints = 0
        self._is_retired = False
        self.read_limits()

    def read_limits(self) -> None:
        """Settings may have changed."""
        config = self._services.config()
        self.budget.read_limit()
        self.frame_bytes_max = config.socket_request_max_bytes
        self.held_bytes_max = config.moldau_connection_inflight_bytes_max
        self.frame_deadline_ms = config.moldau_frame_deadline_ms
        self.unread_deadline_ms = config.moldau_unread_answer_deadline_ms
        idle_ms = config.connections_max_idle_ms
        self.idle_ms = math.inf if idle_ms < 0 else idle_ms
        self.connections_max = int(config.of_listener(self.name, "max.connections"))

    def bind(self) -> int:
        """Take the port, so that it can be advertised; nobody is served yet. Port 0 takes a free
        one, the same for IPv4 and IPv6.
        """
        for family, address in _addresses(self.host):
            bound = socket.socket(family, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._size_buffers(bound)
            try:
                bound.bind((address, self.port))
            except OSError as error:
                bound.close()
                self._close_sockets()
                raise MoldauError(
                    f"listener {self.name} cannot use {self.host or '*'}:{self.port}: "
                    f"{error.strerror}; choose another port or stop who has it"
                ) from error
            bound.setblocking(False)
            self.port = bound.getsockname()[1]
            self._sockets.append(bound)
        return self.port

    def _size_buffers(self, bound: socket.socket) -> None:
        """What it accepts later inherits them. Kafka's defaults of 100 KiB would only slow us down:
        they count if somebody asks for them.
        """
        config = self._services.config()
        sizes = {
            socket.SO_RCVBUF: ("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
            socket.SO_SNDBUF: ("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        }
        for option, (setting, size) in sizes.items():
            if setting in config.given and size > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)

    def listen(self) -> None:
        """Connections are taken; they wait for `serve`."""
        for bound in self._sockets:
            bound.listen(self._backlog)

    async def serve(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for bound in sockets:
            server = await loop.create_server(
                lambda: Connection(self, dispatcher), sock=bound, backlog=self._backlog
            )
            self._servers.append(server)
        if self._is_retired:
            self.retire()
        else:
            self._sweep_later()

    @property
    def _backlog(self) -> int:
        config = self._services.config()
        if "socket.listen.backlog.size" in config.given:
            return config.socket_listen_backlog_size
        return _BACKLOG

    def admit(self, connection: Connection, transport: asyncio.Transport) -> Peer | None:
        """None refuses it."""
        peer_name = transport.get_extra_info("peername")
        if not peer_name:
            return None
        host, port = peer_name[0], peer_name[1]
        refusal = self._services.limits.refusal(host)
        if refusal is None and len(self._connections) >= self.connections_max:
            refusal = f"max.connections of {self.name} is {self.connections_max}"
        if refusal is not None:
            self.metrics.connections_refused += 1
            self.complain(f"{host}:{port} is refused: {refusal}")
            return None
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._services.limits.joined(host)
        self._connections[connection] = None
        self._made += 1
        self.metrics.connections_made += 1
        delay_ms = self._services.limits.delay_ms(self.name)
        if delay_ms > 0:
            connection.is_throttled = True
            self.clock.call_later(delay_ms, connection.throttle_is_over)
        return Peer(self._made, self.name, host, port, self._is_privileged)

    def left(self, connection: Connection) -> None:
        self.budget.forget(connection)
        if self._connections.pop(connection, self) is None and connection.peer is not None:
            self._services.limits.left(connection.peer.host)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def complain(self, text: str) -> None:
        """About a client; a flood of bad ones must not become a flood of lines."""
        self._complaints += 1
        if self._complaints <= _COMPLAINTS_PER_SWEEP:
            _log.warning("%s: %s", self.name, text)

    def drop_connections(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def retire(self) -> None:
        """It was removed. What is under way is answered, if that does not take long: the request
        that removed it may be among it.
        """
        self._is_retired = True
        self.stop_accepting()
        for connection in list(self._connections):
            connection.finish()

        def drop() -> None:
            self.drop_connections()

        self.clock.call_later(_RETIREMENT_MS, drop)

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()

    def _sweep_later(self) -> None:
        self.clock.call_later(_SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        if not self._servers:
            return
        if self._complaints > _COMPLAINTS_PER_SWEEP:
            more = self._complaints - _COMPLAINTS_PER_SWEEP
            _log.warning("%s: %d more of this kind", self.name, more)
        self._complaints = 0
        self.read_limits()
        now_ms = self.clock.mono_ms()
        for connection in list(self._connections):
            connection.check_deadlines(now_ms)
        self._sweep_later()


def _by_address(limits_by_host: Mapping[str, int]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for host, limit in limits_by_host.items():
        try:
            limits |= {address: limit for _, address in _addresses(host)}
        except MoldauError as error:
            _log.warning("max.connections.per.ip.overrides: %s", error)
    return limits


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Where to bind: all interfaces of both families for an empty host."""
    if not host:
        both = [(socket.AF_INET, "0.0.0.0")]  # noqa: S104
        if socket.has_dualstack_ipv6():
            both.append((socket.AF_INET6, "::"))
        return both
    try:
        # As bytes: a text would load the tables of international names at every start.
        found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MoldauError(f"the host {host!r} is unknown: {error.strerror}") from error
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return list(unique)
