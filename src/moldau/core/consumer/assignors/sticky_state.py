"""The input of a sticky assignment: former owners, conflicting claims, and the order of the
members. Java's order is that of its hash maps; it is reproduced here, so that a group gets the same
assignment from any leader.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.core.consumer.assignors.contract import NO_GENERATION, Shares, Subscriptions
from moldau.types import TopicPartition

_FIRST_CAPACITY = 16


class MemberPast(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    generation: int | None
    """None if the member did not send it."""


class GroupPast(NamedTuple):
    owned: Shares
    claimed_twice: set[TopicPartition]
    """Claimed by two members of the same generation, so neither keeps them."""
    max_generation: int
    same_topics: bool


def find_past(
    topics: set[str], members: Subscriptions, pasts: Mapping[str, MemberPast]
) -> GroupPast:
    owned: Shares = {}
    owner_of: dict[TopicPartition, str] = {}
    claimed_twice: set[TopicPartition] = set()
    max_generation = NO_GENERATION
    for member in members:
        past = pasts[member]
        generation = NO_GENERATION if past.generation is None else past.generation
        max_generation = max(max_generation, generation)
        kept = owned[member] = []
        for partition in past.partitions:
            if partition.topic not in topics:
                continue
            other = owner_of.get(partition)
            if other is None:
                kept.append(partition)
                owner_of[partition] = member
                continue
            other_generation = members[other].generation
            if generation < other_generation:
                continue
            if generation == other_generation:
                claimed_twice.add(partition)
            else:
                kept.append(partition)
            if partition in owned[other]:
                owned[other].remove(partition)
            owner_of[partition] = member
    distinct = {frozenset(sub.topics) for sub in members.values()}
    return GroupPast(owned, claimed_twice, max_generation, len(distinct) <= 1)


def in_java_order(names: Iterable[str]) -> list[str]:
    """The iteration order of java.util.HashMap: by bucket, and in a bucket by insertion."""
    names = list(names)
    capacity = _FIRST_CAPACITY
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    return sorted(names, key=lambda name: _spread_hash(name) & (capacity - 1))


def _spread_hash(name: str) -> int:
    units = name.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFF_FFFF
    return value ^ (value >> 16)
