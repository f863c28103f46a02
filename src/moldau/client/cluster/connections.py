"""All connections of a client: one for each broker and lane. They are opened on demand, reopened
after growing pauses, and closed when they are idle.
"""

import asyncio
import os
from collections.abc import Collection, Iterable

from moldau.client.cluster.node_connection import NodeConnection
from moldau.client.cluster.settings import ClientSettings
from moldau.client.errors import AuthenticationError
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError
from moldau.net.tasks import Tasks


class _FailedAttempts:
    """Failures in a row to connect to an address."""

    __slots__ = ("failures", "not_before_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.not_before_ms = 0.0


class Connections:
    def __init__(self, settings: ClientSettings, clock: Clock, tasks: Tasks) -> None:
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._open: dict[tuple[Address, str], NodeConnection] = {}
        self._locks: dict[tuple[Address, str], asyncio.Lock] = {}
        self._failed_attempts: dict[Address, _FailedAttempts] = {}

    async def to(self, address: Address, lane: str = "") -> NodeConnection:
        """The connection to an address, opened if needed. Raises ChannelError or
        AuthenticationError.
        """
        key = address, lane
        async with self._locks.setdefault(key, asyncio.Lock()):
            connection = self._open.get(key)
            if connection is None or connection.channel.is_closed:
                connection = await self._connect(address)
                self._open[key] = connection
                self._watch_idle(connection)
            return connection

    def least_busy(self) -> NodeConnection | None:
        """The open connection with the fewest requests in flight, on the default lane."""
        ready = [
            connection
            for (_, lane), connection in self._open.items()
            if not lane and not connection.channel.is_closed
        ]
        return min(ready, key=lambda connection: connection.channel.in_flight, default=None)

    def in_connect_order(self, addresses: Iterable[Address]) -> list[Address]:
        """In random order, with addresses that failed recently at the end."""
        return sorted(dict.fromkeys(addresses), key=lambda it: (self._pause_ms(it), chance()))

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Closes the connections to brokers that left the cluster."""
        for address in [failed for failed in self._failed_attempts if failed not in addresses]:
            del self._failed_attempts[address]
        for key, connection in list(self._open.items()):
            if connection.channel.is_closed:
                del self._open[key]
            elif key[0] not in addresses and not connection.channel.in_flight:
                connection.channel.drop("the broker is not in the cluster any more")
                del self._open[key]
        for key in [key for key in self._locks if key[0] not in addresses]:
            if not self._locks[key].locked():
                del self._locks[key]

    def drop_all(self, problem: str) -> None:
        for connection in self._open.values():
            connection.channel.drop(problem)
        self._open.clear()

    async def close(self) -> None:
        connections, self._open = self._open, {}
        for connection in connections.values():
            await connection.channel.close()

    async def _connect(self, address: Address) -> NodeConnection:
        if (pause_ms := self._pause_ms(address)) > 0:
            await self._clock.sleep(pause_ms)
        attempts = self._failed_attempts.setdefault(address, _FailedAttempts())
        patience_ms = self._settings.connect_timeout.pause_ms(attempts.failures + 1, chance())
        try:
            connection = await NodeConnection.open(
                address, self._clock, self._settings, self._tasks, connect_timeout_ms=patience_ms
            )
        except (ChannelError, AuthenticationError):
            attempts.failures += 1
            pause_ms = self._settings.reconnect.pause_ms(attempts.failures, chance())
            attempts.not_before_ms = self._clock.mono_ms() + pause_ms
            raise
        self._failed_attempts.pop(address, None)
        return connection

    def _pause_ms(self, address: Address) -> float:
        attempts = self._failed_attempts.get(address)
        return 0 if attempts is None else max(attempts.not_before_ms - self._clock.mono_ms(), 0)

    def _watch_idle(self, connection: NodeConnection) -> None:
        idle_ms_max = self._settings.connections_max_idle_ms
        if idle_ms_max < 0:
            return
        channel = connection.channel

        def check() -> None:
            if channel.is_closed:
                return
            left_ms = channel.used_ms + idle_ms_max - self._clock.mono_ms()
            if channel.in_flight:
                self._clock.call_later(idle_ms_max, check)
            elif left_ms > 0:
                self._clock.call_later(left_ms, check)
            else:
                channel.drop("the connection was idle")

        self._clock.call_later(idle_ms_max, check)


def chance() -> float:
    """A random number from 0 to 1. Loading the module `random` takes too long for commands."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
