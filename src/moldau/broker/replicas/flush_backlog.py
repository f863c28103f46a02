"""Counts what clients have appended since the running flush round began. The next round must sync
all of it before any producer with acks=all gets its response, so it must be bounded: a client
that does not wait for its responses may append faster than the disk writes.

Above the bound, clients that have appended more than a little wait until the next round begins,
which it then does as soon as possible.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.server.context import Peer
    from moldau.net.clock import Clock

BACKLOG_BYTES_MAX = 2 * 1024 * 1024
"""Others wait for up to two rounds of this size."""
SMALL_BYTES = 64 * 1024


class Producing(Protocol):
    """A connection."""

    peer: "Peer | None"

    def resume(self) -> None: ...


class FlushBacklog:
    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._bytes = 0
        self._peers: list[Peer] = []
        self._waiting: dict[Producing, float] = {}
        """When the round began."""
        self.is_full = False
        self.on_full: Callable[[], None] | None = None
        """Called when the backlog has become full."""

    def add(self, peer: "Peer", count: int) -> None:
        """The client has appended `count` bytes, which the next round will sync."""
        if count and not peer.unflushed_bytes:
            self._peers.append(peer)
        peer.unflushed_bytes += count
        self._bytes += count
        if not self.is_full and self._bytes >= BACKLOG_BYTES_MAX:
            self.is_full = True
            if self.on_full is not None:
                self.on_full()

    def refuses(self, connection: Producing) -> bool:
        """Whether the connection must wait. If so, it resumes when the next round begins."""
        peer = connection.peer
        if not self.is_full or peer is None or peer.unflushed_bytes <= SMALL_BYTES:
            return False
        self._waiting.setdefault(connection, self._clock.mono_ms())
        return True

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def forget(self, connection: Producing) -> None:
        """The connection is closed."""
        self._waiting.pop(connection, None)

    def round_began(self) -> None:
        """Everything appended until now is being synced, or deleted."""
        for peer in self._peers:
            peer.unflushed_bytes = 0
        self._peers.clear()
        self._bytes, self.is_full = 0, False
        if self._waiting:
            now_ms, loop = self._clock.mono_ms(), asyncio.get_running_loop()
            for connection, since_ms in self._waiting.items():
                if connection.peer is not None:
                    connection.peer.disk_wait_ms += now_ms - since_ms
                loop.call_soon(connection.resume)
            self._waiting.clear()
