"""What a node counts. Plain numbers on the hot path; `prometheus.py` turns them into text when
somebody asks.
"""

from bisect import bisect_left
from collections import Counter

from moldau.broker.loop_watch import LoopWatch
from moldau.protocol.api_keys import ApiKey

LATENCY_BOUNDS_MS = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)

HELD_BACK = ("time", "memory", "answer", "connections")
"""What clients are kept from taking too much of."""


class ApiMetrics:
    """Requests of one API: how many, and how long they took from frame to answer."""

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
        self.held_back: Counter[str] = Counter()
        """How often a client was kept from taking what others need."""
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
