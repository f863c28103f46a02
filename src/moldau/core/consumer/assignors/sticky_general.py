"""Sticky assignment for members with different subscriptions: members keep their partitions, the
others go to the members with the fewest, and then partitions move while that improves the balance.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from moldau.core.consumer.assignors.contract import (
    NO_GENERATION,
    Shares,
    Subscriptions,
    TopicRacks,
)
from moldau.core.consumer.assignors.racks import RackInfo
from moldau.core.consumer.assignors.sticky_moves import Moves
from moldau.core.consumer.assignors.sticky_state import GroupPast, MemberPast
from moldau.types import TopicPartition


class GeneralAssignment:
    def __init__(
        self, topics: TopicRacks, racks: RackInfo, past: GroupPast, members: Subscriptions
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._max_generation = past.max_generation
        self._members = members
        self._current: Shares = {member: past.owned.get(member, []) for member in members}
        self._topics_of = {
            member: [topic for topic in sub.topics if topic in topics]
            for member, sub in members.items()
        }
        self._readers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, member_topics in self._topics_of.items():
            for topic in member_topics:
                self._readers[topic].append(member)
        self._reader_of = {p: member for member, share in self._current.items() for p in share}
        by_readers = sorted(topics, key=lambda topic: (len(self._readers[topic]), topic))
        self._all = [
            TopicPartition(t, number) for t in by_readers for number in range(len(topics[t]))
        ]
        self._by_size: list[tuple[int, str]] = []
        """Members that take part in balancing, those with the fewest partitions first."""
        self._moves = Moves()
        self._must_give_up = False

    def build(self, pasts: Mapping[str, MemberPast]) -> Shares:
        previous = self._previous(pasts)
        kept = self._keep_owned()
        left = [partition for partition in self._all if partition not in kept]
        self._by_size = sorted((len(share), member) for member, share in self._current.items())
        self._balance(previous, left)
        return self._current

    def _previous(self, pasts: Mapping[str, MemberPast]) -> dict[TopicPartition, str]:
        """The latest owners in older generations."""
        latest: dict[TopicPartition, tuple[str, int]] = {}
        for member in self._members:
            partitions, sent_generation = pasts[member]
            generation = NO_GENERATION if sent_generation is None else sent_generation
            if generation >= self._max_generation:
                continue
            for partition in partitions:
                if partition not in latest or generation > latest[partition][1]:
                    latest[partition] = member, generation
        return {partition: member for partition, (member, _) in latest.items()}

    def _keep_owned(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for member, share in self._current.items():
            kept_share = []
            for partition in share:
                is_subscribed = partition.topic in self._members[member].topics
                if is_subscribed and not self._racks.mismatch(member, partition):
                    kept_share.append(partition)
                else:
                    self._must_give_up = True
            self._current[member] = kept_share
            kept.update(kept_share)
        return kept

    # Balancing.

    def _balance(self, previous: dict[TopicPartition, str], left: list[TopicPartition]) -> None:
        is_first = not self._current[self._by_size[-1][1]]
        unplaced = left
        if self._racks.of_member:
            unplaced = [partition for partition in left if not self._place(partition, near=True)]
        for partition in unplaced:
            self._place(partition, near=False)
        fixed_topics = {topic for topic, readers in self._readers.items() if len(readers) < 2}
        movable = [each for each in self._all if each.topic not in fixed_topics]
        left = [each for each in left if each.topic not in fixed_topics]
        fixed = self._set_aside()
        before = {member: list(share) for member, share in self._current.items()}
        readers_before = dict(self._reader_of)
        if not self._must_give_up:
            self._move_all(left, previous)
        has_moved = self._move_all(movable, previous)
        if not is_first and has_moved and _unevenness(self._current) >= _unevenness(before):
            self._current = before
            self._reader_of = readers_before
        self._current |= fixed

    def _set_aside(self) -> Shares:
        """Takes members out of the balancing that can neither give nor get partitions."""
        fixed: Shares = {}
        for member in self._topics_of:
            share = self._current[member]
            can_get = len(share) < self._max_size(member)
            if not can_get and all(len(self._readers[each.topic]) < 2 for each in share):
                self._take_out(member)
                fixed[member] = self._current.pop(member)
        return fixed

    def _max_size(self, member: str) -> int:
        return sum(len(self._topics[topic]) for topic in self._topics_of[member])

    def _place(self, partition: TopicPartition, *, near: bool) -> bool:
        for _, member in self._by_size:
            if partition.topic not in self._topics_of[member]:
                continue
            if near and self._racks.mismatch(member, partition):
                continue
            self._take_out(member)
            self._current[member].append(partition)
            self._reader_of[partition] = member
            self._put_back(member)
            return True
        return False

    def _move_all(
        self, partitions: list[TopicPartition], previous: dict[TopicPartition, str]
    ) -> bool:
        has_moved = False
        is_changing = True
        while is_changing:
            is_changing = False
            for partition in partitions:
                if self._is_balanced():
                    break
                if self._move_if_better(partition, previous):
                    is_changing = has_moved = True
        return has_moved

    def _move_if_better(
        self, partition: TopicPartition, previous: dict[TopicPartition, str]
    ) -> bool:
        reader = self._reader_of[partition]
        size = len(self._current[reader])
        earlier = previous.get(partition)
        if earlier in self._current and size > len(self._current[earlier]) + 1:
            self._move(partition, earlier)
            return True
        # Kafka prefers a member in a rack of the partition, but then takes any.
        if not any(size > len(self._current[each]) + 1 for each in self._others(partition)):
            return False
        for _, member in self._by_size:
            if partition.topic in self._topics_of[member]:
                self._move(partition, member)
                return True
        return False

    def _others(self, partition: TopicPartition) -> Iterable[str]:
        return (each for each in self._readers[partition.topic] if each in self._current)

    def _move(self, partition: TopicPartition, to: str) -> None:
        partition = self._moves.better_choice(partition, self._reader_of[partition], to)
        old = self._reader_of[partition]
        self._take_out(old)
        self._take_out(to)
        self._moves.note(partition, old, to)
        self._current[old].remove(partition)
        self._current[to].append(partition)
        self._reader_of[partition] = to
        self._put_back(to)
        self._put_back(old)

    def _is_balanced(self) -> bool:
        if self._by_size[0][0] >= self._by_size[-1][0] - 1:
            return True
        for size, member in self._by_size:
            if size == self._max_size(member):
                continue
            owned = set(self._current[member])
            for topic in self._topics_of[member]:
                for number in range(len(self._topics[topic])):
                    partition = TopicPartition(topic, number)
                    if partition in owned:
                        continue
                    if size + 1 < len(self._current.get(self._reader_of[partition], ())):
                        return False
        return True

    # Members sorted by the size of their share. A member is taken out while its share changes.

    def _take_out(self, member: str) -> None:
        entry = len(self._current[member]), member
        index = bisect_left(self._by_size, entry)
        if index < len(self._by_size) and self._by_size[index] == entry:
            del self._by_size[index]

    def _put_back(self, member: str) -> None:
        insort(self._by_size, (len(self._current[member]), member))


def _unevenness(shares: Shares) -> int:
    """The sum of the size differences of all pairs of members."""
    sizes = sorted(map(len, shares.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
