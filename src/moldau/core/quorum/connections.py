"""Which requests are under way: one at a time to each destination, sent again after a pause. Only
the machine's side of it; the shell has the sockets.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from moldau.core.quorum.rpc import Destination, Request


class Chance(Protocol):
    def randrange(self, stop: int, /) -> int: ...


class Sent(NamedTuple):
    """A request whose response is expected."""

    node_id: int
    correlation: int
    request: Request


class _Connection(NamedTuple):
    sent: Sent | None
    """None while it pauses after a failure."""
    due_ms: float
    """When the request times out, or the pause ends."""


class Connections:
    def __init__(
        self,
        bootstrap: Sequence[Destination],
        chance: Chance,
        *,
        request_timeout_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._chance = chance
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._by_id: dict[int, _Connection] = {}
        self._last_correlation = 0

    def begin(self, destination: Destination, request: Request, now_ms: float) -> int:
        """The request is sent: returns its correlation id."""
        self._last_correlation += 1
        sent = Sent(destination.node_id, self._last_correlation, request)
        self._by_id[destination.node_id] = _Connection(sent, now_ms + self._request_timeout_ms)
        return self._last_correlation

    def expected(self, correlation: int) -> Sent | None:
        """None if a response is no longer expected."""
        for connection in self._by_id.values():
            if connection.sent is not None and connection.sent.correlation == correlation:
                return connection.sent
        return None

    def finish(self, sent: Sent, now_ms: float, *, is_success: bool) -> None:
        """The response came, or a failure: after that, the destination is left alone for a moment.
        Nothing happens if the request was forgotten meanwhile.
        """
        if self.expected(sent.correlation) is None:
            return
        if is_success:
            del self._by_id[sent.node_id]
        else:
            self._by_id[sent.node_id] = _Connection(None, now_ms + self._retry_backoff_ms)

    def forget(self, node_id: int) -> None:
        self._by_id.pop(node_id, None)

    def forget_all(self) -> None:
        """Responses to earlier requests mean nothing in the new state."""
        self._by_id.clear()

    def is_ready(self, node_id: int, now_ms: float) -> bool:
        connection = self._by_id.get(node_id)
        return connection is None or now_ms >= connection.due_ms

    def is_paused(self, node_id: int, now_ms: float) -> bool:
        connection = self._by_id.get(node_id)
        return connection is not None and connection.sent is None and now_ms < connection.due_ms

    def has_timed_out(self, node_id: int, now_ms: float) -> bool:
        connection = self._by_id.get(node_id)
        return (
            connection is not None and connection.sent is not None and now_ms >= connection.due_ms
        )

    def due_ms(self, node_id: int, now_ms: float) -> float:
        """When a request can be sent to the node."""
        connection = self._by_id.get(node_id)
        return now_ms if connection is None else max(now_ms, connection.due_ms)

    def is_any_under_way(self, now_ms: float) -> bool:
        return any(
            connection.sent is not None and now_ms < connection.due_ms
            for connection in self._by_id.values()
        )

    def ready_bootstrap(self, now_ms: float) -> Destination | None:
        """A random bootstrap server that is ready; None while any request is in flight."""
        if not self._bootstrap or self.is_any_under_way(now_ms):
            return None
        first = self._chance.randrange(len(self._bootstrap))
        for destination in (*self._bootstrap[first:], *self._bootstrap[:first]):
            if self.is_ready(destination.node_id, now_ms):
                return destination
        return None

    def bootstrap_due_ms(self, now_ms: float) -> float:
        """When the next request to a bootstrap server may be sent."""
        under_way = [
            connection.due_ms
            for connection in self._by_id.values()
            if connection.sent is not None and now_ms < connection.due_ms
        ]
        if under_way:
            return min(under_way)
        if not self._bootstrap:
            return float("inf")
        return min(self.due_ms(destination.node_id, now_ms) for destination in self._bootstrap)
