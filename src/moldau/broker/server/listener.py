"""One listener: a bound address, its connections, and their limits. Refused connections are closed
at once. All listeners of a node share its time, memory and connection limits.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.broker.server.connection import Connection
from moldau.broker.server.connection_limits import ConnectionLimits, ThrottledConnections
from moldau.broker.server.context import Peer
from moldau.broker.server.dispatch import Dispatcher
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.broker.server.turns import Turns
from moldau.net.frame_reader import SCRATCH_BYTES
from moldau.net.network import BoundPort, Network, Server, SystemNetwork
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.broker.metrics.counters import Metrics
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks

_log = logging.getLogger(__name__)

_SWEEP_MS = 1_000
_SLICES_CUT_MAX = 100
_DISK_WAIT_MS_MAX = _SWEEP_MS / 2
_ACCEPT_QUEUE_SIZE = 512
"""The event loop accepts all of them at once: more would delay its other work."""
_RETIREMENT_MS = 2_000
_COMPLAINTS_MAX = 5
_COMPLAINT_SWEEPS_MAX = 60
_IDLE_MS = 10_000
_CHECKED_MAX = 64
_LOG_CHARS_MAX = 255
_LOG_AGAIN_MS = 60_000
_LOGGED_MAX = 1_000


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ListenerServices:
    """The services that all listeners of a node share."""

    clock: "Clock"
    tasks: "Tasks"
    metrics: "Metrics"
    limits: ConnectionLimits
    budget: MemoryBudget
    turns: Turns
    flush_backlog: FlushBacklog
    config: Callable[[], "BrokerConfig"]
    network: Network = field(default_factory=SystemNetwork)


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
        self.turns = services.turns
        self.flush_backlog = services.flush_backlog
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.dispatcher: Dispatcher | None = None
        self._services = services
        self.is_privileged = is_privileged
        self._ports: list[BoundPort] = []
        self._servers: list[Server] = []
        self._connections: dict[Connection, None] = {}
        self._throttled = ThrottledConnections(
            services.clock,
            lambda: services.limits.delay_ms(name, is_privileged=is_privileged),
        )
        self._made = 0
        self._complaints = _Complaints(name)
        self._logged_until_ms: dict[tuple[str, str, str], float] = {}
        self._is_retired = False
        self.read_limits()

    def read_limits(self) -> None:
        """Settings may have changed."""
        config = self._services.config()
        self.budget.read_limit()
        self.frame_bytes_max = config.socket_request_max_bytes
        self.held_bytes_max = min(
            config.moldau_connection_inflight_bytes_max, self.budget.connection_bytes_max
        )
        self.frame_deadline_ms = config.moldau_frame_deadline_ms
        self.unread_deadline_ms = config.moldau_unread_answer_deadline_ms
        idle_ms = config.connections_max_idle_ms
        self.idle_ms = math.inf if idle_ms < 0 else idle_ms
        self.connections_max = int(config.of_listener(self.name, "max.connections"))

    def bind(self) -> int:
        """Binds the port, so that it can be advertised; no client is served yet. Port 0 selects a
        free one, the same for IPv4 and IPv6.
        """
        network, buffers = self._services.network, self._buffer_sizes()
        for family, address in network.addresses_of(self.host):
            try:
                bound = network.bind(family, address, self.port, buffers)
            except OSError as error:
                self._close_ports()
                raise MoldauError(
                    f"listener {self.name} cannot use {self.host or '*'}:{self.port}: "
                    f"{error.strerror}; choose another port or stop the process that has it"
                ) from error
            self.port = bound.port
            self._ports.append(bound)
        return self.port

    def _buffer_sizes(self) -> dict[int, int]:
        """Only those that are configured: Kafka's defaults of 100 KiB would slow connections
        down.
        """
        config = self._services.config()
        sizes = {
            socket.SO_RCVBUF: ("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
            socket.SO_SNDBUF: ("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        }
        return {
            option: size
            for option, (setting, size) in sizes.items()
            if setting in config.given and size > 0
        }

    def listen(self) -> None:
        """Accepts connections; they wait for `serve`."""
        for bound in self._ports:
            bound.listen(self._accept_queue_size)

    async def serve(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        ports, self._ports = self._ports, []
        for bound in ports:
            server = await bound.serve(
                lambda: Connection(self, dispatcher), self._accept_queue_size
            )
            self._servers.append(server)
        if self._is_retired:
            self.retire()
        else:
            self._sweep_later()

    @property
    def _accept_queue_size(self) -> int:
        config = self._services.config()
        if "socket.listen.backlog.size" in config.given:
            return config.socket_listen_backlog_size
        return _ACCEPT_QUEUE_SIZE

    def admit(self, connection: Connection, transport: asyncio.Transport) -> Peer | None:
        """Returns None to refuse it."""
        peer_name = transport.get_extra_info("peername")
        if not peer_name:
            return None
        host, port = peer_name[0], peer_name[1]
        reason = self._refusal(host)
        if reason is not None:
            self.metrics.connections_refused += 1
            self._complaints.add(f"{host}:{port} is refused: {reason}")
            return None
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._services.limits.opened(host)
        self._connections[connection] = None
        self._made += 1
        self.metrics.connections_made += 1
        connection.is_throttled = self._throttled.must_wait(connection)
        peer = Peer(self._made, self.name, host, port, self.is_privileged)
        peer.takes_files = raw is not None and transport.get_extra_info("sslcontext") is None
        return peer

    def _refusal(self, host: str) -> str | None:
        limits = self._services.limits
        refusal = limits.refusal(host, is_privileged=self.is_privileged)
        if refusal is not None and refusal.lacks_room and self._close_idle_connection():
            refusal = limits.refusal(host, is_privileged=self.is_privileged)
        if refusal is not None:
            return refusal.reason
        if len(self._connections) >= self.connections_max:
            return f"max.connections of {self.name} is {self.connections_max}"
        if len(self._throttled) >= self._accept_queue_size:
            return f"{len(self._throttled)} wait for max.connection.creation.rate"
        return None

    def _close_idle_connection(self) -> bool:
        """Makes room for a new client. Returns whether there was an idle connection to close."""
        now_ms = self.clock.mono_ms()
        for connection in list(islice(self._connections, _CHECKED_MAX)):
            if connection.is_idle(now_ms, _IDLE_MS):
                self.held_back(connection, "connections", "disconnected: there is no room for more")
                connection.abort()
                self.connection_closed(connection)
                return True
            # Its turn comes again after all others.
            self._connections[connection] = self._connections.pop(connection)
        return False

    def connection_closed(self, connection: Connection) -> None:
        self.budget.forget(connection)
        self.flush_backlog.forget(connection)
        self._throttled.forget(connection)
        if self._connections.pop(connection, self) is None and connection.peer is not None:
            self._services.limits.closed(connection.peer.host)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def refused(self, connection: Connection, why: str) -> None:
        """Logs why the connection is disconnected; the caller closes it."""
        self._complaints.add(
            f"{_client_text(connection)} is disconnected: {why[:_LOG_CHARS_MAX]!a}"
        )

    def held_back(self, connection: Connection, kind: str, text: str) -> None:
        """The client is held back because it takes what others need. Logged once a minute for each
        client, however often it connects.
        """
        peer = connection.peer
        host, client_id = ("", "") if peer is None else (peer.host, peer.client_id)
        self.metrics.held_back.add(kind, host, client_id)
        key = host, client_id[:_LOG_CHARS_MAX], kind
        now_ms = self.clock.mono_ms()
        if now_ms >= self._logged_until_ms.get(key, now_ms):
            if len(self._logged_until_ms) >= _LOGGED_MAX:
                self._logged_until_ms.clear()
            self._logged_until_ms[key] = now_ms + _LOG_AGAIN_MS
            self._complaints.add(f"{_client_text(connection)} is held back: {text}")

    def _report_if_greedy(self, connection: Connection) -> None:
        """Reports a client that took more than its share since the previous sweep."""
        if connection.slices_cut > _SLICES_CUT_MAX:
            text = "it sends more than its share of the node's time"
            self.held_back(connection, "time", text)
        connection.slices_cut = 0
        peer = connection.peer
        if peer is not None:
            if peer.disk_wait_ms > _DISK_WAIT_MS_MAX:
                text = "it sends records faster than the disk writes them"
                self.held_back(connection, "disk", text)
            peer.disk_wait_ms = 0.0

    def drop_connections(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def retire(self) -> None:
        """The listener was removed. Requests in progress are answered if that does not take long:
        the request that removed it may be one of them.
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
        self._close_ports()

    def _close_ports(self) -> None:
        for bound in self._ports:
            bound.close()
        self._ports.clear()

    def _sweep_later(self) -> None:
        self.clock.call_later(_SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        if not self._servers:
            return
        # First: a failure below must not end the sweeps.
        self._sweep_later()
        self._complaints.sweep()
        self.read_limits()
        now_ms = self.clock.mono_ms()
        for connection in list(self._connections):
            connection.check_deadlines(now_ms)
            self._report_if_greedy(connection)
        self.budget.relieve(now_ms)


class _Complaints:
    """Logs complaints about clients. A flood of bad clients must not become a flood of lines: the
    longer it lasts, the rarer they become. It is over after a pause of the same length.
    """

    def __init__(self, listener_name: str) -> None:
        self._listener_name = listener_name
        self._count = 0
        self._sweeps = 0
        self._sweeps_max = 1

    def add(self, text: str) -> None:
        self._count += 1
        if self._count <= _COMPLAINTS_MAX:
            _log.warning("%s: %s", self._listener_name, text)

    def sweep(self) -> None:
        self._sweeps += 1
        if self._sweeps < self._sweeps_max:
            return
        more = self._count - _COMPLAINTS_MAX
        if more > 0:
            _log.warning("%s: %d more such lines were left out", self._listener_name, more)
        self._sweeps_max = min(2 * self._sweeps_max, _COMPLAINT_SWEEPS_MAX) if self._count else 1
        self._count = self._sweeps = 0


def _client_text(connection: Connection) -> str:
    """The client's address and escaped name, for the log: a client may call itself anything."""
    peer = connection.peer
    if peer is None:
        return "a client"
    name = f" ({peer.client_id[:_LOG_CHARS_MAX]!a})" if peer.client_id else ""
    return f"{peer.host}:{peer.port}{name}"
