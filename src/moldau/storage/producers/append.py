"""An append in progress, checked against the producer state of the partition: duplicates, gaps, old
epochs, late markers, unverified transactions. Nothing is changed here.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.versions import BUMPS_EPOCH_FROM
from moldau.storage.producers.entry import (
    SEQUENCE_MAX,
    BatchMetadata,
    DataBatch,
    EndMarker,
    ProducerEntry,
    increment_sequence,
)
from moldau.storage.producers.verification import Verification
from moldau.types import PRODUCER_EPOCH_MAX, Offset, ProducerEpoch

if TYPE_CHECKING:
    from moldau.storage.producers.state import ProducerStateTable

TRANSACTION_VERSION_UNKNOWN = -1


class AppendOrigin(Enum):
    """The source of an append, which determines the checks."""

    CLIENT = "client"
    """Everything is checked."""
    COORDINATOR = "coordinator"
    """Offset commits and end markers: epochs are checked; they have no sequences."""
    REPLICATION = "replication"
    """The leader has checked it; only batches that would corrupt our own state are refused."""
    RAFT_LEADER = "raft leader"
    """The metadata log: offsets are already assigned."""


_VERIFIED_ORIGINS = {AppendOrigin.CLIENT, AppendOrigin.COORDINATOR}


class CompletedTransaction(NamedTuple):
    """`last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class ProducerAppend:
    """One append in progress. Later batches are checked against earlier ones of the same append;
    the table is unchanged until `ProducerStateTable.apply`.
    """

    __slots__ = (
        "_origin",
        "_shown",
        "_table",
        "_transaction_version",
        "_verification",
        "completed",
        "ended_verifications",
        "entries",
        "started",
    )

    def __init__(
        self,
        table: "ProducerStateTable",
        origin: AppendOrigin,
        transaction_version: int,
        verification: Verification | None,
    ) -> None:
        self._table = table
        self._origin = origin
        self._transaction_version = transaction_version
        self._verification = verification
        self.entries: dict[int, ProducerEntry] = {}
        self.started: list[tuple[Offset, int]] = []
        """(first offset, producer id) of transactions that this append opens."""
        self.ended_verifications: list[tuple[int, ProducerEpoch | None]] = []
        """(producer id, the marker's epoch if the end raised it) of verifications that this append
        ends.
        """
        self.completed: list[CompletedTransaction] = []

    def add_data(self, batch: DataBatch) -> BatchMetadata | None:
        """For a retry of a remembered batch, returns the batch as it was appended before: the
        caller must not write it again. Otherwise the batch becomes part of this append.
        """
        producer_id, epoch, base_sequence, first_offset, last_offset, _, transactional = batch
        known = self._table.entry(producer_id)
        if (
            known is not None
            and known.is_followed_by(batch)
            and producer_id not in self.entries
            and (known.transaction_first_offset >= 0 or not transactional)
        ):
            # The usual case, and the only one that must be fast.
            entry = known.copy()
        else:
            duplicate = self._check(batch, known)
            if duplicate is not None:
                return duplicate
            entry = self._entry(producer_id, known)
        if entry.transaction_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} wrote outside its open transaction at {first_offset}",
            )
        last_sequence = increment_sequence(base_sequence, last_offset - first_offset)
        entry.add_batch(
            epoch,
            BatchMetadata(
                base_sequence, last_sequence, first_offset, last_offset, batch.max_timestamp_ms
            ),
        )
        if transactional:
            self.ended_verifications.append((producer_id, None))
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = first_offset
                self.started.append((first_offset, producer_id))
        self.entries[producer_id] = entry
        return None

    def _check(self, batch: DataBatch, known: ProducerEntry | None) -> BatchMetadata | None:
        is_client = self._origin is AppendOrigin.CLIENT
        if is_client and known is not None and known.epoch == batch.producer_epoch:
            duplicate = _find_duplicate(known, batch)
            if duplicate is None and _is_past(known, batch):
                duplicate = self._recall_duplicate(known, batch)
            if duplicate is not None:
                return duplicate
        entry = self._entry(batch.producer_id, known)
        epoch = batch.producer_epoch
        if epoch < entry.epoch and self._origin is not AppendOrigin.REPLICATION:
            raise _stale_epoch(batch.producer_id, epoch, entry.epoch, batch.first_offset)
        verification = self._table.verifications.get(batch.producer_id)
        if batch.is_transactional and self._origin in _VERIFIED_ORIGINS:
            self._check_verified(entry, batch, verification)
        if is_client:
            if verification is not None:
                _check_waiting(known, batch, verification)
            _check_sequence(entry, batch, is_unknown=known is None or known.epoch < 0)
        return None

    def _check_verified(
        self, entry: ProducerEntry, batch: DataBatch, verification: Verification | None
    ) -> None:
        """A transaction may only be opened with a verification that the coordinator has confirmed
        and no marker has outdated. A transaction already open in this epoch needs none.
        """
        is_open = entry.transaction_first_offset >= 0 and entry.epoch == batch.producer_epoch
        if is_open or not self._table.verifies:
            return
        if self._verification is None or verification is not self._verification:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has no transaction open at {batch.first_offset}",
            )

    def _recall_duplicate(self, known: ProducerEntry, batch: DataBatch) -> BatchMetadata | None:
        """A snapshot has only the last batch, so earlier ones are searched for in the log. Even if
        they are gone there, every batch before the last was certainly appended once.
        """
        has_forgotten = self._table.recall(known)
        duplicate = _find_duplicate(known, batch)
        if duplicate is None and has_forgotten:
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} again",
            )
        return duplicate

    def add_marker(self, marker: EndMarker) -> CompletedTransaction | None:
        """None if the transaction had no data here: such a marker changes nothing."""
        version = self._transaction_version
        assert version >= 0 or self._origin is AppendOrigin.REPLICATION, "markers need a version"
        entry = self._entry(marker.producer_id, self._table.entry(marker.producer_id))
        if self._origin is not AppendOrigin.REPLICATION:
            _check_marker(entry, marker, version)
        completed = None
        if entry.transaction_first_offset >= 0:
            first_offset = entry.transaction_first_offset
            completed = CompletedTransaction(
                marker.producer_id, first_offset, marker.offset, marker.is_abort
            )
            self.completed.append(completed)
        entry.end_transaction(marker)
        # Only an end that raised the epoch leaves room for a next transaction in that epoch.
        raised_epoch = marker.producer_epoch if version >= BUMPS_EPOCH_FROM else None
        self.ended_verifications.append((marker.producer_id, raised_epoch))
        self.entries[marker.producer_id] = entry
        return completed

    def _entry(self, producer_id: int, known: ProducerEntry | None) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is not None:
            return entry
        return ProducerEntry(producer_id) if known is None else known.copy()


def _find_duplicate(known: ProducerEntry, batch: DataBatch) -> BatchMetadata | None:
    base_sequence = batch.base_sequence
    last_sequence = increment_sequence(base_sequence, batch.last_offset - batch.first_offset)
    for candidate in known.batches:
        if candidate[0] == base_sequence and candidate[1] == last_sequence:
            return candidate
    return None


def _is_past(known: ProducerEntry, batch: DataBatch) -> bool:
    """Sequences up to half way round are before the last one."""
    last_sequence = increment_sequence(batch.base_sequence, batch.last_offset - batch.first_offset)
    return (known.last_sequence - last_sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


def _check_waiting(
    known: ProducerEntry | None, batch: DataBatch, verification: Verification
) -> None:
    """An earlier batch may be waiting for its verification."""
    sequence = batch.base_sequence
    expected = verification.lowest_sequence
    if verification.adds and (known is None or not known.batches):
        # With transaction version 2 every transaction begins with sequence 0.
        expected = 0
    if sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} sent sequence {sequence} before {expected}",
        )


def _check_sequence(entry: ProducerEntry, batch: DataBatch, *, is_unknown: bool) -> None:
    sequence = batch.base_sequence
    if is_unknown:
        # Retention may have deleted its records: any sequence may come next.
        return
    if batch.producer_epoch != entry.epoch:
        if sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} began epoch {batch.producer_epoch} with sequence "
                f"{sequence}, expected 0 (last epoch {entry.epoch})",
            )
        return
    last = entry.last_sequence
    if sequence != last + 1 and not (sequence == 0 and last == SEQUENCE_MAX):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} sent sequence {sequence} after {last}",
        )


def _check_marker(entry: ProducerEntry, marker: EndMarker, version: int) -> None:
    epoch, current = marker.producer_epoch, entry.epoch
    if version >= BUMPS_EPOCH_FROM:
        # From version 2 the coordinator bumps the epoch for every marker, so an equal epoch means a
        # late marker, unless no transaction is open: then it is a harmless retry (KAFKA-19999). The
        # last epoch cannot be bumped.
        is_retry = epoch == current and (
            entry.transaction_first_offset < 0 or epoch == PRODUCER_EPOCH_MAX
        )
        is_stale = epoch <= current and not is_retry
    else:
        is_stale = epoch < current
    if is_stale:
        raise _stale_epoch(marker.producer_id, epoch, current, marker.offset)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker for producer {marker.producer_id} has coordinator epoch "
            f"{marker.coordinator_epoch}, already seen {entry.coordinator_epoch}",
        )


def _stale_epoch(
    producer_id: int, epoch: ProducerEpoch, current: ProducerEpoch, offset: Offset
) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} used epoch {epoch} at offset {offset}, last seen {current}",
    )


def begin_verification(
    table: "ProducerStateTable", batch: tuple[int, ProducerEpoch, int], *, adds: bool, now_ms: int
) -> Verification | None:
    """The verification to pass with `batch` (its producer's id and epoch, its first sequence) once
    the coordinator has confirmed the transaction. None if the transaction is already open here.
    Raises if the epoch is fenced.
    """
    producer_id, epoch, sequence = batch
    entry = table.entry(producer_id)
    if entry is not None:
        if epoch < entry.epoch:
            raise _stale_epoch(producer_id, epoch, entry.epoch, table.end_offset)
        if entry.transaction_first_offset >= 0 and entry.epoch == epoch:
            return None
    return table.verifications.begin(producer_id, sequence, epoch, adds=adds, now_ms=now_ms)
