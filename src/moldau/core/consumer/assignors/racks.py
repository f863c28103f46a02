"""Racks of members and replicas. They matter only if members and replicas share racks, and not
every partition is in all of them.
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
        racks = {member: sub.rack for member, sub in members.items() if sub.rack}
        replicas: dict[TopicPartition, frozenset[str]] = {}
        if racks:
            replicas = {
                TopicPartition(topic, number): partition_racks
                for topic, partitions in topics.items()
                for number, partition_racks in enumerate(partitions)
            }
        count_in: dict[str, int] = {}
        for rack in racks.values():
            count_in[rack] = count_in.get(rack, 0) + 1
        self._readers_near = {
            partition: sum(count_in.get(rack, 0) for rack in partition_racks)
            for partition, partition_racks in replicas.items()
        }
        matters = racks_matter(set(racks.values()), list(replicas.values()))
        self.of_member: Mapping[str, str] = racks if matters else {}
        self.of_partition: Mapping[TopicPartition, frozenset[str]] = replicas if matters else {}

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition.get(partition, frozenset())

    def hardest_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions with few members in their racks first."""
        return sorted(partitions, key=lambda partition: self._readers_near.get(partition, 0))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int:
        """The index of the next member in a rack of the partition, or -1."""
        racks = self.of_partition.get(partition)
        if not racks:
            return -1
        for step in range(len(members)):
            index = (start + step) % len(members)
            if self.of_member.get(members[index]) in racks:
                return index
        return -1
