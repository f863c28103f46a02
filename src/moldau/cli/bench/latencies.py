"""A histogram of latencies in buckets of one percent, so that its memory is bounded."""

import math
from collections import Counter

_GROWTH = math.log(1.01)
_SMALLEST_MS = 0.001


class Latencies:
    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._count = 0
        self._sum_ms = 0.0
        self._max_ms = 0.0

    def __len__(self) -> int:
        return self._count

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    def add(self, latency_ms: float) -> None:
        self._count += 1
        self._sum_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)
        self._buckets[int(math.log(max(latency_ms, _SMALLEST_MS) / _SMALLEST_MS) / _GROWTH)] += 1

    @property
    def mean_ms(self) -> float:
        return self._sum_ms / self._count if self._count else 0.0

    @property
    def max_ms(self) -> float:
        return self._max_ms

    def percentile_ms(self, percent: float) -> float:
        """The percentile, at most one percent too high."""
        rank = max(math.ceil(self._count * percent / 100), 1)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(_SMALLEST_MS * math.exp((bucket + 1) * _GROWTH), self._max_ms)
        return 0.0

    def as_json(self) -> dict[str, float]:
        named = {
            "meanMs": self.mean_ms,
            "p50Ms": self.percentile_ms(50),
            "p90Ms": self.percentile_ms(90),
            "p99Ms": self.percentile_ms(99),
            "p999Ms": self.percentile_ms(99.9),
            "maxMs": self.max_ms,
        }
        return {name: round(value, 3) for name, value in named.items()}
