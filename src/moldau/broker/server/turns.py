"""Connections share the event loop fairly.

A connection is served as soon as its bytes arrive, for one slice of time; the rest of what it sent
queues after the connections that have been served less. The queue is worked through a few
milliseconds at a time, so that the loop notices others in between. This is start-time fair
queueing: each connection carries a mark of the time it was given, and one that is new, or was
quiet, starts from the mark that the queue has reached. So a queue of any length delays a newcomer
by one slice, not by all who wait, and a connection that has the node to itself never waits.
"""

import asyncio
import heapq
import logging
from itertools import count
from typing import TYPE_CHECKING, Protocol

from moldau.unexpected import log_unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

SLICE_MS = 2.0
"""For one connection before others are considered; a request that was begun is finished."""
TURN_MS = 5.0
"""For all connections before the loop checks for new bytes and due timers."""


class TakesTurns(Protocol):
    served_ms: float
    """The mark: the time it was given, or the queue's current mark if that is ahead."""

    def take_turn(self) -> None:
        """Works for one slice; reports its duration by `Turns.used`, and calls `join` if more is
        left.
        """

    def abort(self) -> None:
        """Closes the connection."""


class Turns:
    def __init__(self) -> None:
        self._queue: list[tuple[float, int, TakesTurns]] = []
        self._tie_breaker = count()
        self._mark_ms = 0.0
        self._spent_ms = 0.0
        self._is_scheduled = False
        self.is_over = False
        """No connection is served any more before the loop has polled."""
        self.after_each: Callable[[], None] | None = None
        """Called at the end of every turn, so only while there is much to do."""

    def __len__(self) -> int:
        return len(self._queue)

    def may_begin(self, served_ms: float) -> bool:
        """Whether a connection with this mark may be served now, without queueing."""
        if self.is_over:
            return False
        return not self._queue or served_ms <= self._mark_ms + SLICE_MS

    def used(self, connection: TakesTurns, ms: float) -> None:
        mark_ms = (max(self._mark_ms, connection.served_ms)) + ms
        connection.served_ms = mark_ms
        if not self._queue:
            self._mark_ms = mark_ms
        self._spent_ms += ms
        # Counted from the end of the last turn, whenever that was: polling once too often costs
        # little, while checking at every request would not.
        if self._spent_ms >= TURN_MS and not self.is_over:
            self.is_over = True
            self._schedule()

    def join(self, connection: TakesTurns) -> None:
        entry = (max(connection.served_ms, self._mark_ms), next(self._tie_breaker), connection)
        heapq.heappush(self._queue, entry)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_scheduled = False
        self._begin()
        # Each at most as often as there were waiting at first, so that zero-time turns end, too.
        for _ in range(len(self._queue)):
            if self.is_over or not self._queue:
                break
            mark_ms, _, connection = heapq.heappop(self._queue)
            self._mark_ms = max(self._mark_ms, mark_ms)
            try:
                connection.take_turn()
            except Exception as error:  # noqa: BLE001 - the others are not to blame
                log_unexpected(_log, "a turn, which ends its connection,", error)
                connection.abort()
        self._begin()
        if self._queue:
            self._schedule()
        if self.after_each is not None:
            self.after_each()

    def _begin(self) -> None:
        self._spent_ms = 0.0
        self.is_over = False
