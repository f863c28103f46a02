"""Which partition a record goes to. The usual way, murmur2 of the key and sticky turns without one,
is in the appender; here are the turns (KIP-794) and the other ways.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias
from zlib import crc32

from moldau.core.producer.batching import murmur2

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""Topic, key, value, how many partitions -> a partition."""
Chance: TypeAlias = Callable[[], float]
"""From 0 up to, but without, 1."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def next_sticky(
    count: int, chance: float, waiting: Sequence[int] = (), usable: Sequence[int] | None = None
) -> int:
    """Where records without a key go for the next batch. With `waiting` batches by partition, those
    that keep up get more; `usable` are the partitions with a leader, if not all.
    """
    candidates = range(count) if usable is None or not usable else usable
    if not any(waiting):
        return candidates[int(chance * len(candidates))]
    longest = max(waiting[number] for number in candidates)
    weights = list(accumulate(longest + 1 - waiting[number] for number in candidates))
    return candidates[bisect_right(weights, int(chance * weights[-1]))]


class RoundRobin:
    """One after the other, keys or not."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG002
        turn = self._turns.get(topic, -1) + 1
        self._turns[topic] = turn
        return turn % count


def fnv1a(content: bytes) -> int:
    value = _FNV_OFFSET
    for octet in content:
        value = (value ^ octet) * _FNV_PRIME & 0xFFFF_FFFF
    # Without its sign, as the first client that hashed so.
    return min(value, (1 << 32) - value)


def _by(
    hash_of: Callable[[bytes], int], chance: Chance | None, *, spreads_empty: bool = False
) -> Partitioner:
    """As librdkafka does it: with `chance`, records without a key (or, for one of them, with an
    empty one) go anywhere; else they count as an empty key.
    """

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG001
        if chance is not None and (key is None or (spreads_empty and not key)):
            return int(chance() * count)
        return hash_of(key or b"") % count

    return choose


def named_partitioner(name: str, chance: Chance) -> Partitioner:
    """By librdkafka's names, and `round_robin`. Raises KeyError."""
    made: dict[str, Callable[[], Partitioner]] = {
        "round_robin": RoundRobin,
        "random": lambda: lambda _topic, _key, _value, count: int(chance() * count),
        "consistent": lambda: _by(crc32, None),
        "consistent_random": lambda: _by(crc32, chance, spreads_empty=True),
        "murmur2": lambda: _by(lambda key: murmur2(key) & 0x7FFF_FFFF, None),
        "murmur2_random": lambda: _by(lambda key: murmur2(key) & 0x7FFF_FFFF, chance),
        "fnv1a": lambda: _by(fnv1a, None),
        "fnv1a_random": lambda: _by(fnv1a, chance),
    }
    return made[name]()


PARTITIONER_NAMES = (
    "round_robin",
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
)
JAVA_NAMES = {"org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin"}
