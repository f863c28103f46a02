"""Racks of members and of replicas: who would read from near by. Used only where it can help: there
are racks in common, and not every partition is on all of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from moldau.core.consumer.assignors.contract import Subscriptions, TopicRacks
from moldau.types import TopicPartition


def racks_matter(
    member_racks: Collection[str], racks_by_partition: Collection[frozenset[str]]
) -> bool:
    everywhere = frozenset().union(*racks_by_partition)
    if everywhere.isdisjoint(member_racks):
        return False
    return any(racks != everywhere for racks in racks_by_partition)


class RackInfo:
    """Empty unless racks matter."""

    def __init__(self, topics: TopicRacks, members: Subscriptions) -> None:
        racks = {member: one.rack for member, one in members.items() if one.rack}
        replicas: dict[TopicPartition, frozenset[str]] = {}
        if racks:
            replicas = {
                TopicPartition(topic, number): found
                for topic, partitions in topics.items()
                for number, found in enumerate(partitions)
            }
        count_in: dict[str, int] = {}
        for rack in racks.values():
            count_in[rack] = count_in.get(rack, 0) + 1
        self._readers_near = {
            partition: sum(count_in.get(rack, 0) for rack in found)
            for partition, found in replicas.items()
        }
        matters = racks_matter(set(racks.values()), list(replicas.values()))
        self.of_member: Mapping[str, str] = racks if matters else {}
        self.of_partition: Mapping[TopicPartition, frozenset[str]] = replicas if matters else {}

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition.get(partition, frozenset())

    def hardest_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those first that few members are near to."""
        return sorted(partitions, key=lambda one: self._readers_near.get(one, 0))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int:
        """The place of the next member in a rack of the partition, or -1."""
        racks = self.of_partition.get(partition)
        if not racks:
            return -1
        for step in range(len(members)):
            place = (start + step) % len(members)
            if self.of_member.get(members[place]) in racks:
                return place
        return -1
