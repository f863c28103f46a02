"""Partitioners. The appender implements the default: murmur2 of the key, sticky without a key. Here
are the choice of the sticky partition (KIP-794) and the other partitioners.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias
from zlib import crc32

from moldau.core.producer.batching import murmur2

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""Takes topic, key, value and the number of partitions, and returns a partition."""
Chance: TypeAlias = Callable[[], float]
"""Returns a random number from 0 to below 1."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def next_sticky(
    count: int, chance: float, waiting: Sequence[int] = (), usable: Sequence[int] | None = None
) -> int:
    """The partition of the next batch of records without a key. Partitions with fewer `waiting`
    batches are more likely; `usable` are the partitions with a leader, if not all.
    """
    candidates = range(count) if usable is None or not usable else usable
    if not any(waiting):
        return candidates[int(chance * len(candidates))]
    longest = max(waiting[number] for number in candidates)
    weights = list(accumulate(longest + 1 - waiting[number] for number in candidates))
    return candidates[bisect_right(weights, int(chance * weights[-1]))]


class RoundRobin:
    """Cycles through the partitions and ignores keys."""

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
    # The absolute value, as in the client that introduced this partitioner.
    return min(value, (1 << 32) - value)


def _hash_partitioner(
    hash_of: Callable[[bytes], int], chance: Chance | None, *, spreads_empty: bool = False
) -> Partitioner:
    """As in librdkafka. With `chance`, records without a key get a random partition (with
    `spreads_empty` also those with an empty key); otherwise no key counts as an empty one.
    """

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG001
        if chance is not None and (key is None or (spreads_empty and not key)):
            return int(chance() * count)
        return hash_of(key or b"") % count

    return choose


def named_partitioner(name: str, chance: Chance) -> Partitioner:
    """A partitioner by librdkafka's name, or `round_robin`. Raises KeyError."""
    by_name: dict[str, Callable[[], Partitioner]] = {
        "round_robin": RoundRobin,
        "random": lambda: lambda _topic, _key, _value, count: int(chance() * count),
        "consistent": lambda: _hash_partitioner(crc32, None),
        "consistent_random": lambda: _hash_partitioner(crc32, chance, spreads_empty=True),
        "murmur2": lambda: _hash_partitioner(lambda key: murmur2(key) & 0x7FFF_FFFF, None),
        "murmur2_random": lambda: _hash_partitioner(lambda key: murmur2(key) & 0x7FFF_FFFF, chance),
        "fnv1a": lambda: _hash_partitioner(fnv1a, None),
        "fnv1a_random": lambda: _hash_partitioner(fnv1a, chance),
    }
    return by_name[name]()


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
