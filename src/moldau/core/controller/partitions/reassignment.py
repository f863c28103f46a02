"""Replicas on their way to other brokers. Those to come are added first; when all of them are in
sync, those to go are removed.
"""

from collections.abc import Sequence
from typing import Self

from moldau.core.metadata.image import PartitionImage
from moldau.frozen import frozen


@frozen(kw_only=True)
class Reassignment:
    """Where a partition's replicas are, and where they shall be. At rest nothing comes or goes."""

    replicas: tuple[int, ...]
    """All of them: those to stay, to come and to go."""
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionImage) -> Self:
        return cls(
            replicas=partition.replicas,
            removing=partition.removing_replicas,
            adding=partition.adding_replicas,
        )

    @classmethod
    def towards(cls, partition: PartitionImage, target: Sequence[int]) -> Self:
        """As in Kafka, one that is under way keeps what it adds and what it removes, each unless
        the new one has something to add or to remove itself.
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
        """The replication factor when it is done."""
        return len({*self.replicas, *self.adding} - {*self.removing})

    def completed(self, isr: tuple[int, ...]) -> "tuple[Reassignment, tuple[int, ...]] | None":
        """What is left when it ends, and who is in sync then; None while it has to wait."""
        if not self.is_under_way:
            return None
        staying = tuple(each for each in self.replicas if each not in self.removing)
        in_sync = tuple(each for each in isr if each not in self.removing)
        if self.removing and not (staying and in_sync):
            return None
        if not set(self.adding) <= set(in_sync):
            return None
        # A smaller factor must not leave fewer in sync than there are now.
        if len(self.adding) < len(self.removing) and not set(staying) <= set(in_sync):
            return None
        return Reassignment(replicas=staying), in_sync

    def original(self) -> tuple[int, ...]:
        """The replicas before it began."""
        return tuple(each for each in self.replicas if each not in self.adding)
