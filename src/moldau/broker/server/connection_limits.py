"""The limits on connections: what the settings allow, and what the node has room for."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.net.network import addresses_of
from moldau.protocol.errors import MoldauError
from moldau.types import INT32_MAX

if TYPE_CHECKING:
    from moldau.broker.server.connection import Connection
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

CONNECTION_BYTES = 16 * 1024
"""Memory of an idle connection, including its socket's buffers."""
_FOR_PEERS_MAX = 32
_HOST_SHARE = 0.9
_UNLIMITED = INT32_MAX
_DELAY_MS_MAX = 1_000
"""As in Kafka, with its default of quota.window.size.seconds."""


class Refusal(NamedTuple):
    reason: str
    lacks_room: bool
    """Closing an idle connection helps, unlike at a limit that is set."""


class ConnectionLimits:
    """Enforces max.connections, max.connections.per.ip, the number that the process has descriptors
    and memory for, and the rate of new connections. A few connections are reserved for the
    node's peers, and one address cannot take all of them.
    """

    def __init__(
        self, config: Callable[[], "BrokerConfig"], clock: "Clock", possible: int = _UNLIMITED
    ) -> None:
        """`possible`: how many connections the process has descriptors for."""
        self._config = config
        self._clock = clock
        self._possible = possible
        self._count = 0
        self._by_host: Counter[str] = Counter()
        self._next_free_ms: dict[str, float] = {}
        self._overrides: Mapping[str, int] = {}
        self._limits_by_address: Mapping[str, int] = {}

    def refusal(self, host: str, *, is_privileged: bool = False) -> Refusal | None:
        config = self._config()
        # As in Kafka, the clients' connections do not keep other nodes out.
        if self._count >= config.max_connections and not is_privileged:
            return Refusal(f"max.connections is {config.max_connections}", lacks_room=False)
        allowed = self._overrides_of(config).get(host, config.max_connections_per_ip)
        if self._by_host[host] >= allowed:
            return Refusal(f"max.connections.per.ip is {allowed}", lacks_room=False)
        reason = self._no_room(config, host, is_privileged=is_privileged)
        return None if reason is None else Refusal(reason, lacks_room=True)

    def _no_room(self, config: "BrokerConfig", host: str, *, is_privileged: bool) -> str | None:
        in_memory = config.moldau_inflight_bytes_max // CONNECTION_BYTES
        room = min(self._possible, in_memory)
        if not is_privileged:
            room -= min(_FOR_PEERS_MAX, room // 10)
        for_host = room if is_privileged else max(int(room * _HOST_SHARE), 1)
        if self._count < room and self._by_host[host] < for_host:
            return None
        more = "raise moldau.inflight.bytes.max"
        if self._possible <= in_memory:
            more = "raise the number of files this process may open (ulimit -n)"
        return f"there is room for {room}, {for_host} of them for one address; {more}"

    def _overrides_of(self, config: "BrokerConfig") -> Mapping[str, int]:
        """max.connections.per.ip.overrides by address; host names are looked up once."""
        overrides = config.connection_limits_by_host
        if overrides is not self._overrides:
            self._overrides = overrides
            self._limits_by_address = _by_address(overrides)
        return self._limits_by_address

    def delay_ms(self, listener: str, *, is_privileged: bool = False) -> float:
        """How long the next connection of the listener must wait so that neither the node nor the
        listener exceeds its max.connection.creation.rate: a second at most.
        """
        config = self._config()
        of_listener = int(config.of_listener(listener, "max.connection.creation.rate"))
        delay_ms = self._turn_in_ms(listener, of_listener)
        if is_privileged:
            # As in Kafka, the clients' connections do not delay those of other nodes.
            return delay_ms
        return max(delay_ms, self._turn_in_ms("", config.max_connection_creation_rate))

    def _turn_in_ms(self, queue: str, rate: int) -> float:
        if rate >= _UNLIMITED:
            return 0.0
        # 0 would lock all clients out for good, including the operator who could undo it.
        rate = max(rate, 1)
        now_ms = self._clock.mono_ms()
        # The connections of one second may come at once.
        free_ms = max(self._next_free_ms.get(queue, 0.0), now_ms - 1_000) + 1_000 / rate
        # One listener's flood must not make the others wait longer and longer.
        free_ms = min(free_ms, now_ms + _DELAY_MS_MAX)
        self._next_free_ms[queue] = free_ms
        return max(free_ms - now_ms, 0.0)

    def opened(self, host: str) -> None:
        self._count += 1
        self._by_host[host] += 1

    def closed(self, host: str) -> None:
        self._count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class ThrottledConnections:
    """A listener's new connections that wait for max.connection.creation.rate. As in Kafka, each
    listener accepts one after the other: only the first counts against the rates, so that a flood
    on one listener does not use up the turns of the others.
    """

    def __init__(self, clock: "Clock", delay_ms: Callable[[], float]) -> None:
        """`delay_ms` counts a connection and returns how long it must wait."""
        self._clock = clock
        self._delay_ms = delay_ms
        self._waiting: dict[Connection, None] = {}
        self._has_timer = False

    def __len__(self) -> int:
        return len(self._waiting)

    def must_wait(self, connection: "Connection") -> bool:
        """If so, its `throttle_is_over` is called when its turn comes."""
        if not self._has_timer:
            delay_ms = self._delay_ms()
            if delay_ms <= 0:
                return False
            self._wait(delay_ms)
        self._waiting[connection] = None
        return True

    def forget(self, connection: "Connection") -> None:
        self._waiting.pop(connection, None)

    def _wait(self, delay_ms: float) -> None:
        self._has_timer = True
        self._clock.call_later(delay_ms, self._admit_first)

    def _admit_first(self) -> None:
        self._has_timer = False
        first = next(iter(self._waiting), None)
        if first is None:
            return
        del self._waiting[first]
        if self._waiting:
            self._wait(self._delay_ms())
        first.throttle_is_over()


def _by_address(limits_by_host: Mapping[str, int]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for host, limit in limits_by_host.items():
        try:
            limits |= {address: limit for _, address in addresses_of(host)}
        except MoldauError as error:
            _log.warning("max.connections.per.ip.overrides: %s", error)
    return limits
