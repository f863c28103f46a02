"""Reassignment of replicas to other brokers. The new replicas are added first; when all of them are
in sync, the old ones are removed.
"""

from collections.abc import Sequence
from typing import Self

from moldau.core.metadata.image import PartitionImage
from moldau.frozen import frozen
from moldau.types import BrokerId


@frozen(kw_only=True)
class Reassignment:
    """A partition's current and target replicas. At rest nothing is added or removed."""

    replicas: tuple[BrokerId, ...]
    """All of them: those that stay, those that are added and those that are removed."""
    removing: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()

    @classmethod
    def of(cls, partition: PartitionImage) -> Self:
        return cls(
            replicas=partition.replicas,
            removing=partition.removing_replicas,
            adding=partition.adding_replicas,
        )

    @classmethod
    def towards(cls, partition: PartitionImage, target: Sequence[BrokerId]) -> Self:
        """As in Kafka, an ongoing reassignment keeps its added and its removed replicas, each
        unless the new one adds or removes replicas itself.
        """
        removing = tuple(sorted(set(partition.replicas) - set(target)))
        adding = tuple(sorted(set(target) - set(partition.replicas)))
        return cls(
            replicas=(*target, *removing),
            removing=removing or partition.removing_replicas,
            adding=adding or partition.adding_replicas,
        )

    @property
    def is_under_way(self) -> bool:
        return bool(self.removing or self.adding)

    @property
    def size(self) -> int:
        """The replication factor after the reassignment."""
        return len({*self.replicas, *self.adding} - {*self.removing})

    def completed(self, isr: tuple[BrokerId, ...]) -> "tuple[Reassignment, tuple[int, ...]] | None":
        """The replicas and the in-sync replicas after completion; None while it must wait."""
        if not self.is_under_way:
            return None
        staying = tuple(each for each in self.replicas if each not in self.removing)
        in_sync = tuple(each for each in isr if each not in self.removing)
        if self.removing and not (staying and in_sync):
            return None
        if not set(self.adding) <= set(in_sync):
            return None
        # When the factor shrinks, every remaining replica must be in sync.
        if len(self.adding) < len(self.removing) and not set(staying) <= set(in_sync):
            return None
        return Reassignment(replicas=staying), in_sync

    def original(self) -> tuple[BrokerId, ...]:
        """The replicas before it began."""
        return tuple(each for each in self.replicas if each not in self.adding)
