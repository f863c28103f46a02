"""Each member gets a range of every topic's partitions; the first members get one more. Where racks
matter, members first get partitions of their own rack; topics with the same size and readers are
assigned alike.
"""

from collections.abc import Callable, Sequence

from moldau.core.consumer.assignors.contract import (
    MemberView,
    RebalanceProtocol,
    Shares,
    Subscriptions,
    TopicRacks,
    member_order,
)
from moldau.core.consumer.assignors.racks import racks_matter
from moldau.types import TopicPartition


class RangeAssignor:
    name = "range"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, member: MemberView) -> bytes | None:  # noqa: ARG002 - part of the interface
        return None

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        shares: Shares = {member: [] for member in members}
        ordered = member_order(members)
        states = [
            _Topic(
                topic,
                racks,
                [member for member in ordered if topic in members[member].topics],
                members,
            )
            for topic, racks in sorted(topics.items())
            if racks
        ]
        uses_racks = any(state.uses_racks for state in states)
        if uses_racks:
            _assign_near(states, shares)
        for state in states:
            state.assign_ranges(shares, lambda _member, _number: True)
        if uses_racks:
            for share in shares.values():
                share.sort()
        return shares


class _Topic:
    def __init__(
        self,
        topic: str,
        racks: Sequence[frozenset[str]],
        readers: list[str],
        members: Subscriptions,
    ) -> None:
        self.topic = topic
        self.readers = readers
        self.racks = racks
        self._rack_of = {reader: members[reader].rack for reader in readers if members[reader].rack}
        self._left = list(range(len(racks)))
        self._assigned_counts = dict.fromkeys(readers, 0)
        self._least, self._more = divmod(len(racks), len(readers)) if readers else (0, 0)
        known = {rack for rack in self._rack_of.values() if rack}
        self.uses_racks = bool(known) and racks_matter(known, racks)

    def is_near(self, member: str, number: int) -> bool:
        rack = self._rack_of.get(member)
        return rack is None or rack in self.racks[number]

    def room(self, member: str) -> int:
        return max(0, self._least + (self._more > 0) - self._assigned_counts[member])

    def give(self, member: str, numbers: list[int], shares: Shares) -> None:
        shares[member] += [TopicPartition(self.topic, number) for number in numbers]
        self._assigned_counts[member] += len(numbers)
        if self._assigned_counts[member] > self._least:
            self._more -= 1
        self._left = [number for number in self._left if number not in set(numbers)]

    def assign_ranges(self, shares: Shares, may_have: Callable[[str, int], bool]) -> None:
        for member in self.readers:
            if not self._left:
                return
            allowed = [number for number in self._left if may_have(member, number)]
            if chosen := allowed[: self.room(member)]:
                self.give(member, chosen, shares)


def _assign_near(states: list[_Topic], shares: Shares) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for state in states:
        alike.setdefault((tuple(state.readers), len(state.racks)), []).append(state)
    for (readers, count), group in alike.items():
        if len(group) > 1:
            _assign_alike(group, readers, count, shares)
        elif group[0].uses_racks:
            group[0].assign_ranges(shares, group[0].is_near)


def _assign_alike(
    group: list[_Topic], readers: tuple[str, ...], count: int, shares: Shares
) -> None:
    """The same partition of every topic goes to one member: joins then read from their rack."""
    left = list(readers)
    for number in range(count):
        member = next(
            (each for each in left if all(t.is_near(each, number) and t.room(each) for t in group)),
            None,
        )
        if member is None:
            continue
        for state in group:
            state.give(member, [number], shares)
        if not any(state.room(member) for state in group):
            left.remove(member)
