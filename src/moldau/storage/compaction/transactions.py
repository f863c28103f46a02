"""Decides which batches of a compaction pass belong to aborted transactions, and which markers may
be dropped. Reads the transactional and control batches in log order; pure.
"""

from collections.abc import Iterable

from moldau.protocol.records.control_records import ControlType
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.types import Offset


class TransactionTracker:
    """`kept_aborts` collects the aborts whose data may still be in the log: the transaction index
    of the cleaned segment.
    """

    __slots__ = ("_aborted", "_committed", "_has_data", "_waiting", "kept_aborts")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Sorted so that the next transaction to begin is the last element.
        self._waiting = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._has_data: set[int] = set()
        self._committed: set[int] = set()
        self.kept_aborts: list[AbortedTransaction] = []

    def take_kept_aborts(self) -> list[AbortedTransaction]:
        kept, self.kept_aborts = self.kept_aborts, []
        return kept

    def on_data(self, last_offset: Offset, producer_id: int) -> bool:
        """Returns True if the batch is part of an aborted transaction."""
        self._begin_up_to(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is not None and aborted.last_offset < last_offset:
            # The marker of that transaction could not be read.
            del self._aborted[producer_id]
            self._has_data.discard(producer_id)
            aborted = None
        if aborted is not None:
            self._has_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control(self, last_offset: Offset, producer_id: int, marker: ControlType | None) -> bool:
        """Returns True if no data of the marker's transaction is left. `marker` is None for a batch
        whose record is already removed.
        """
        self._begin_up_to(last_offset)
        if marker is None:
            return True
        if marker is ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or producer_id not in self._has_data:
                return True
            self._has_data.discard(producer_id)
            self.kept_aborts.append(aborted)
            return False
        if marker is ControlType.COMMIT:
            is_empty = producer_id not in self._committed
            self._committed.discard(producer_id)
            return is_empty
        return False

    def _begin_up_to(self, offset: Offset) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            aborted = self._waiting.pop()
            # Keys are learned from the first dirty offset, which may come after the marker: then no
            # transaction is left to abort. (Kafka treats the producer's next transaction as aborted
            # here and leaves some old values uncompacted.)
            if aborted.last_offset >= offset:
                self._aborted[aborted.producer_id] = aborted
