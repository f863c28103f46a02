"""Sticky assignment for members with the same subscription, the common case: members keep their
partitions up to a fair share, and the rest is distributed.
"""

from moldau.core.consumer.assignors.contract import Shares, TopicRacks
from moldau.core.consumer.assignors.racks import RackInfo
from moldau.core.consumer.assignors.sticky_state import GroupPast
from moldau.types import TopicPartition


class SameTopicsAssignment:
    def __init__(self, topics: TopicRacks, racks: RackInfo, past: GroupPast) -> None:
        self._topics = topics
        self._racks = racks
        self._past = past
        members = len(past.owned)
        total = sum(map(len, topics.values()))
        self._least, self._larger_expected = divmod(total, members)
        """Every member gets `_least` partitions, and `_larger_expected` members one more."""
        self._most = self._least + (self._larger_expected > 0)
        self._larger = 0
        self._below: list[str] = []
        self._at_least: list[str] = []
        """Members with the least number, which may still get one more."""
        self._shares: Shares = {member: [] for member in past.owned}
        self._maybe_given_up: dict[TopicPartition, str] = {}
        self.moving: dict[TopicPartition, str] = {}
        """The new members of partitions that another member owns."""

    def build(self) -> Shares:
        for member in self._past.owned:
            self._keep_owned(member)
        kept = {partition for share in self._shares.values() for partition in share}
        left = [
            TopicPartition(topic, number)
            for topic in sorted(self._topics)
            for number in range(len(self._topics[topic]))
            if (topic, number) not in kept
        ]
        self._below.sort()
        self._at_least.sort()
        left = self._racks.hardest_first(left)
        if self._racks.of_member:
            left = self._deal_near(left)
        self._deal(left)
        return self._shares

    def _keep_owned(self, member: str) -> None:
        owned = []
        for partition in self._past.owned[member]:
            if self._racks.mismatch(member, partition):
                self._maybe_given_up[partition] = member
            elif partition not in self._past.claimed_twice:
                owned.append(partition)
        owned.sort(key=lambda each: (each.partition, each.topic))
        if len(owned) < self._least:
            self._shares[member] += owned
            self._below.append(member)
            return
        may_have_more = self._larger < self._larger_expected
        if len(owned) >= self._most and may_have_more:
            self._larger += 1
            if self._larger == self._larger_expected:
                self._at_least.clear()
            kept = self._most
        else:
            kept = self._least
            if may_have_more:
                self._at_least.append(member)
        self._shares[member] += owned[:kept]
        self._maybe_given_up.update(dict.fromkeys(owned[kept:], member))

    def _deal_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Distributes to members in the partition's racks. Returns the partitions without one."""
        start = 0
        far = []
        for partition in left:
            index = self._racks.next_near(partition, self._below, start)
            if index >= 0:
                member = self._below[index]
                if len(self._shares[member]) + 1 >= self._least:
                    del self._below[index]
                    self._note_filled(member)
                else:
                    index += 1
                start = index % len(self._below) if self._below else 0
                self._give(partition, member)
            elif (index := self._racks.next_near(partition, self._at_least, 0)) >= 0:
                self._give(partition, self._take_at_least(index))
            else:
                far.append(partition)
        return far

    def _note_filled(self, member: str) -> None:
        if len(self._shares[member]) + 1 < self._most and self._larger < self._larger_expected:
            self._at_least.append(member)

    def _take_at_least(self, index: int) -> str:
        member = self._at_least[index]
        if len(self._shares[member]) + 1 == self._most:
            del self._at_least[index]
            self._larger += 1
            if self._larger == self._larger_expected:
                self._at_least.clear()
        return member

    def _deal(self, left: list[TopicPartition]) -> None:
        index = 0
        for partition in left:
            if self._below:
                index %= len(self._below)
                member = self._below[index]
                index += 1
                if self._give(partition, member) == self._least:
                    index -= 1
                    del self._below[index]
                    self._at_least.append(member)
            else:
                member = self._at_least.pop(0)
                if self._give(partition, member) == self._most:
                    self._larger += 1

    def _give(self, partition: TopicPartition, member: str) -> int:
        self._shares[member].append(partition)
        owner = self._maybe_given_up.get(partition, member)
        if owner != member or partition in self._past.claimed_twice:
            self.moving[partition] = member
        return len(self._shares[member])
