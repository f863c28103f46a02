"""Transactional writes that wait for the coordinator to confirm that the partition belongs to the
transaction (KIP-890). Without that check a late write could open a transaction that stays open
forever: its marker may already have arrived.
"""

from moldau.types import ProducerEpoch

# Kafka lets them wait for a day; a client that invents producer ids could then fill the memory.
VERIFICATIONS_MAX = 10_000


class Verification:
    """The verification of one producer. Its identity counts: another one of the same producer and
    epoch belongs to another transaction.
    """

    __slots__ = ("adds", "began_ms", "epoch", "lowest_sequence")

    def __init__(self, sequence: int, epoch: ProducerEpoch, *, adds: bool, began_ms: int) -> None:
        self.lowest_sequence = sequence
        """The lowest sequence of the waiting batches. A higher one must not be written first: then
        the lowest could never be written, and its client would retry forever.
        """
        self.epoch = epoch
        self.adds = adds
        """The write itself adds the partition, as since transaction version 2: then every
        transaction has an epoch of its own.
        """
        self.began_ms = began_ms

    def joined_by(self, sequence: int, epoch: ProducerEpoch) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def outlives(self, marker_epoch: ProducerEpoch) -> bool:
        """Whether the marker ends an earlier transaction than the one that waits here."""
        return self.adds and marker_epoch == self.epoch


class Verifications:
    """The verifications of one partition, by producer id."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, Verification] = {}

    def begin(
        self, producer_id: int, sequence: int, epoch: ProducerEpoch, *, adds: bool, now_ms: int
    ) -> Verification:
        """One verification serves all waiting batches of the producer."""
        pending = self._pending.get(producer_id)
        if pending is not None:
            pending.joined_by(sequence, epoch)
            return pending
        if len(self._pending) >= VERIFICATIONS_MAX:
            del self._pending[next(iter(self._pending))]
        pending = Verification(sequence, epoch, adds=adds, began_ms=now_ms)
        self._pending[producer_id] = pending
        return pending

    def get(self, producer_id: int) -> Verification | None:
        return self._pending.get(producer_id)

    def end(self, producer_id: int, marker_epoch: ProducerEpoch | None = None) -> None:
        """The transaction is open here now, or `marker_epoch` ended it."""
        pending = self._pending.get(producer_id)
        if pending is not None and (marker_epoch is None or not pending.outlives(marker_epoch)):
            del self._pending[producer_id]

    def expire(self, before_ms: int) -> None:
        for producer_id in [p for p, v in self._pending.items() if v.began_ms <= before_ms]:
            del self._pending[producer_id]

    def __len__(self) -> int:
        return len(self._pending)
