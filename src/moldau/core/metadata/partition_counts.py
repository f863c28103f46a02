"""How many partitions each broker leads, is in sync for, or may be elected for. An image with a
hundred thousand partitions answers with them what would otherwise take a walk over all.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from moldau.frozen import frozen
from moldau.types import BrokerId

if TYPE_CHECKING:
    from moldau.core.metadata.image import PartitionImage


@frozen(kw_only=True)
class PartitionCounts:
    """Mappings have no entries of 0."""

    total: int = 0
    led: Mapping[BrokerId, int] = field(default_factory=dict)
    """Partitions without a leader count for NO_LEADER."""
    in_sync: Mapping[BrokerId, int] = field(default_factory=dict)
    """Partitions by each of their in-sync replicas."""
    eligible: Mapping[BrokerId, int] = field(default_factory=dict)
    """Partitions by each of their eligible leader replicas."""
    not_preferred: int = 0
    """Partitions that another broker leads than their first replica, or none."""


class CountsDraft:
    """The counts of the next image, while records change it."""

    __slots__ = ("_base", "_changed")

    def __init__(self, base: PartitionCounts) -> None:
        self._base = base
        self._changed: _Counting | None = None

    def replaced(self, before: "PartitionImage | None", after: "PartitionImage | None") -> None:
        """None: the partition did not exist before, or is deleted."""
        if self._changed is None:
            self._changed = _Counting(self._base)
        if before is not None:
            self._changed.add(before, -1)
        if after is not None:
            self._changed.add(after, 1)

    def become(self, counts: PartitionCounts) -> None:
        self._base, self._changed = counts, None

    @property
    def counts(self) -> PartitionCounts:
        return self._base if self._changed is None else self._changed.counts()


class _Counting:
    __slots__ = ("_eligible", "_in_sync", "_led", "_not_preferred", "_total")

    def __init__(self, base: PartitionCounts) -> None:
        self._total, self._not_preferred = base.total, base.not_preferred
        self._led, self._in_sync = dict(base.led), dict(base.in_sync)
        self._eligible = dict(base.eligible)

    def add(self, partition: "PartitionImage", sign: int) -> None:
        self._total += sign
        leader = partition.leader
        if partition.replicas[:1] != (leader,):
            self._not_preferred += sign
        self._led[leader] = self._led.get(leader, 0) + sign
        in_sync = self._in_sync
        for broker in partition.isr:
            in_sync[broker] = in_sync.get(broker, 0) + sign
        for broker in partition.eligible_leader_replicas:
            self._eligible[broker] = self._eligible.get(broker, 0) + sign

    def counts(self) -> PartitionCounts:
        return PartitionCounts(
            total=self._total,
            led=_without_zeros(self._led),
            in_sync=_without_zeros(self._in_sync),
            eligible=_without_zeros(self._eligible),
            not_preferred=self._not_preferred,
        )


def _without_zeros(counts: dict[BrokerId, int]) -> Mapping[BrokerId, int]:
    return {broker: count for broker, count in counts.items() if count}
