"""A node's metrics: plain numbers on the hot path, which `prometheus.py` turns into text on
request.
"""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from moldau.broker.server.loop_watch import LoopWatch
from moldau.protocol.api_keys import ApiKey

LATENCY_BOUNDS_MS = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)

HELD_BACK = ("time", "disk", "memory", "answer", "connections")
"""Kinds of limits that clients run into; docs/operations/held-back.md says what to do."""


_NAMED_MAX = 10
_NAME_CHARS_MAX = 64


class HeldBackClient(NamedTuple):
    host: str
    client_id: str
    """Both are safe to show: a client may call itself anything."""
    kind: str


class HeldBack:
    """Counts how often limits held clients back, and which clients: the few that were held back
    most often, or last.
    """

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()
        self.by_client: dict[HeldBackClient, int] = {}

    def add(self, kind: str, host: str, client_id: str) -> None:
        assert kind in HELD_BACK
        self.by_kind[kind] += 1
        client = HeldBackClient(host, ascii(client_id[:_NAME_CHARS_MAX])[1:-1], kind)
        known = self.by_client
        if client not in known and len(known) >= _NAMED_MAX:
            # Evict the oldest of the rarest.
            del known[min(known, key=known.__getitem__)]
        known[client] = known.get(client, 0) + 1


class ApiMetrics:
    """Requests of one API: their number, and their time from frame to response."""

    __slots__ = ("buckets", "count", "total_ms", "unanswered")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.unanswered = 0
        self.buckets = [0] * (len(LATENCY_BOUNDS_MS) + 1)


class Metrics:
    def __init__(self) -> None:
        self.by_api: dict[ApiKey, ApiMetrics] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_made = 0
        self.connections_refused = 0
        self.held_back = HeldBack()
        self.loop_lag_ms = 0.0
        """The latest measurement."""
        self.loop_lag_max_ms = 0.0
        self.loop = LoopWatch()

    def request_served(self, api_key: ApiKey, took_ms: float, is_answered: bool) -> None:
        api = self.by_api.get(api_key)
        if api is None:
            api = self.by_api[api_key] = ApiMetrics()
        api.count += 1
        api.total_ms += took_ms
        api.buckets[bisect_left(LATENCY_BOUNDS_MS, took_ms)] += 1
        if not is_answered:
            api.unanswered += 1
