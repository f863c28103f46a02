"""Exponential backoff with jitter, so that many clients do not retry at the same moment."""

from moldau.frozen import frozen

JITTER = 0.2
# 2 ** 31 ms are weeks. The limit keeps the power finite.
_DOUBLINGS_MAX = 31


@frozen
class Backoff:
    first_ms: float
    max_ms: float

    def pause_ms(self, failures: int, chance: float) -> float:
        """The pause after `failures` failures in a row, counted from 1. `chance` is from 0 to 1."""
        grown_ms = self.first_ms * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX)
        return min(grown_ms * (1 + JITTER * (2 * chance - 1)), self.max_ms)
