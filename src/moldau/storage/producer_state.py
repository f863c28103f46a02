"""What a partition knows of its idempotent and transactional producers: sequences, epochs, open
transactions. Pure: no files, no clock.

An append is decided first and applied after the write: `begin_append`; `add_data` or `add_marker`
per batch, which refuse or answer a duplicate and change nothing; write; `apply`; then
`complete_transaction` for each of `append.completed`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from moldau.protocol.batches import TRANSACTIONAL_FLAG
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.record_loops import ScannedBatch
from moldau.storage.producer_entry import (
    BATCHES_REMEMBERED,
    SEQUENCE_MAX,
    BatchMetadata,
    DataBatch,
    EndMarker,
    ProducerEntry,
    increment_sequence,
)
from moldau.storage.unreplicated import UnreplicatedTransactions
from moldau.storage.verification import Verification, Verifications

EPOCH_MAX = 2**15 - 1
PRODUCER_ID_EXPIRATION_MS = 86_400_000
# Kafka lets the table grow for a day; a client that invents ids would then own the heap.
PRODUCER_IDS_MAX = 100_000
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000

TRANSACTION_VERSION_UNKNOWN = -1


SearchLog = Callable[[ProducerEntry], Sequence[BatchMetadata]]
"""The batches before those that are remembered, oldest first."""


class AppendOrigin(Enum):
    """Who appends, and so how much is checked."""

    CLIENT = "client"
    """Everything is checked."""
    COORDINATOR = "coordinator"
    """Offset commits and end markers: epochs are checked, there are no sequences."""
    REPLICATION = "replication"
    """The leader has checked; only what would break our own state is refused."""
    RAFT_LEADER = "raft leader"
    """The metadata log: offsets are already assigned."""


_VERIFIED_ORIGINS = {AppendOrigin.CLIENT, AppendOrigin.COORDINATOR}


class CompletedTransaction(NamedTuple):
    """`last_offset` is the marker's own."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerAppend:
    """One append in the making. Later batches are checked against the earlier ones of the same
    append; the table sees nothing until `ProducerStateTable.apply`.
    """

    __slots__ = (
        "_guard",
        "_origin",
        "_table",
        "_transaction_version",
        "completed",
        "entries",
        "started",
        "verified",
    )

    def __init__(
        self,
        table: "ProducerStateTable",
        origin: AppendOrigin,
        transaction_version: int,
        guard: Verification | None,
    ) -> None:
        self._table = table
        self._origin = origin
        self._transaction_version = transaction_version
        self._guard = guard
        self.entries: dict[int, ProducerEntry] = {}
        self.started: list[tuple[int, int]] = []
        """(first offset, producer id) of transactions that this append opens."""
        self.verified: list[tuple[int, int | None]] = []
        """(producer id, the marker's epoch): the guards that have done their duty."""
        self.completed: list[CompletedTransaction] = []

    def add_data(self, batch: DataBatch) -> BatchMetadata | None:
        """A retry of a remembered batch is answered with what was appended then: the caller must
        not write it. Otherwise the batch becomes part of this append.
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
            epoch, BatchMetadata(base_sequence, last_sequence, first_offset, last_offset, batch[5])
        )
        if transactional:
            self.verified.append((producer_id, None))
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = first_offset
                self.started.append((first_offset, producer_id))
        self.entries[producer_id] = entry
        return None

    def _check(self, batch: DataBatch, known: ProducerEntry | None) -> BatchMetadata | None:
        is_client = self._origin is AppendOrigin.CLIENT
        if is_client and known is not None and known.epoch == batch.producer_epoch:
            duplicate = _find_duplicate(known, batch) or self._recall_duplicate(known, batch)
            if duplicate is not None:
                return duplicate
        entry = self._entry(batch.producer_id, known)
        epoch = batch.producer_epoch
        if epoch < entry.epoch and self._origin is not AppendOrigin.REPLICATION:
            raise _stale_epoch(batch.producer_id, epoch, entry.epoch, batch.first_offset)
        verification = self._table.verifications.get(batch.producer_id)
        if batch.is_transactional and self._origin in _VERIFIED_ORIGINS:
            self._check_guard(entry, batch, verification)
        if is_client:
            if verification is not None:
                _check_waiting(known, batch, verification)
            _check_sequence(entry, batch, is_unknown=known is None or known.epoch < 0)
        return None

    def _check_guard(
        self, entry: ProducerEntry, batch: DataBatch, verification: Verification | None
    ) -> None:
        """The coordinator knows of a transaction that is open here in this epoch. Before it is, the
        answer to a verification that no marker has outdated must be shown.
        """
        is_open = entry.transaction_first_offset >= 0 and entry.epoch == batch.producer_epoch
        if is_open or not self._table.verifies:
            return
        if self._guard is None or verification is not self._guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has no transaction open at {batch.first_offset}",
            )

    def _recall_duplicate(self, known: ProducerEntry, batch: DataBatch) -> BatchMetadata | None:
        """A snapshot has only the last batch: the others are looked for in the log, and if they are
        gone, it is still certain that whatever came before the last was appended once.
        """
        has_forgotten = self._table.recall(known)
        duplicate = _find_duplicate(known, batch)
        if duplicate is None and has_forgotten and _is_past(known, batch):
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} again",
            )
        return duplicate

    def add_marker(self, marker: EndMarker) -> CompletedTransaction | None:
        """None if the transaction had no data here: such a marker moves nothing."""
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
        self.verified.append((marker.producer_id, marker.producer_epoch))
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
    """Up to half the way round, sequences are before the last one."""
    last_sequence = increment_sequence(batch.base_sequence, batch.last_offset - batch.first_offset)
    return (known.last_sequence - last_sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


def _check_waiting(
    known: ProducerEntry | None, batch: DataBatch, verification: Verification
) -> None:
    """An earlier batch may have been put off by its verification."""
    sequence = batch.base_sequence
    expected = verification.lowest_sequence
    if verification.adds and (known is None or not known.batches):
        # Every transaction of this kind begins with sequence 0.
        expected = 0
    if sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} sent sequence {sequence} before {expected}",
        )


def _check_sequence(entry: ProducerEntry, batch: DataBatch, *, is_unknown: bool) -> None:
    sequence = batch.base_sequence
    if is_unknown:
        # Its records may have been deleted by retention: any sequence may come next.
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
    if version >= 2:
        # From version 2 the coordinator bumps the epoch for every marker, so an equal epoch is a
        # late marker, unless nothing is open: then it is a retry and harmless (KAFKA-19999). At the
        # last epoch there is nothing to bump to.
        is_retry = epoch == current and (entry.transaction_first_offset < 0 or epoch == EPOCH_MAX)
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


def _stale_epoch(producer_id: int, epoch: int, current: int, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} used epoch {epoch} at offset {offset}, last seen {current}",
    )


class ProducerStateTable:
    """Producers of one partition. `end_offset` is the offset up to which the log is reflected."""

    __slots__ = (
        "_entries",
        "_idle",
        "_is_cut",
        "_ongoing",
        "_producer_ids_max",
        "_recalled",
        "_snapshotted",
        "_unreplicated",
        "end_offset",
        "expiration_ms",
        "search_log",
        "verifications",
        "verifies",
    )

    def __init__(
        self,
        *,
        end_offset: int = 0,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        producer_ids_max: int = PRODUCER_IDS_MAX,
    ) -> None:
        self.end_offset = end_offset
        self.expiration_ms = expiration_ms
        self._producer_ids_max = producer_ids_max
        self._entries: dict[int, ProducerEntry] = {}
        # Least recently used first; only ids without an open transaction may be evicted.
        self._idle: OrderedDict[int, None] = OrderedDict()
        # First offset -> producer id, ascending.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        self._unreplicated = UnreplicatedTransactions()
        # Id -> epoch of producers that a snapshot told of.
        self._snapshotted: dict[int, int] = {}
        self._recalled: set[int] = set()
        self._is_cut = False
        """It begins with a log that had lost its beginning."""
        self.search_log: SearchLog = lambda _entry: ()
        self.verifies = False
        """Transactions are opened with a guard only: there is a coordinator to ask."""
        self.verifications = Verifications()

    def begin_append(
        self,
        origin: AppendOrigin,
        *,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        guard: Verification | None = None,
    ) -> ProducerAppend:
        return ProducerAppend(self, origin, transaction_version, guard)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds: bool, now_ms: int
    ) -> Verification | None:
        """The guard to be shown with the append once the coordinator has agreed. None if the
        transaction is open here already. Raises if the epoch is fenced.
        """
        entry = self._entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise _stale_epoch(producer_id, epoch, entry.epoch, self.end_offset)
            if entry.transaction_first_offset >= 0 and entry.epoch == epoch:
                return None
        return self.verifications.begin(producer_id, sequence, epoch, adds=adds, now_ms=now_ms)

    def expects(self, header: ScannedBatch) -> ProducerEntry | None:
        """The usual case, which must be fast: the batch is the next one of its producer, in the
        same epoch and in no transaction. `advance` once it is in the log. None decides nothing.
        """
        entry = self._entries.get(header[7])
        if (
            entry is None
            or entry.epoch != header[8]
            or not entry.batches
            or entry.batches[-1][1] + 1 != header[9]
            or entry.transaction_first_offset >= 0
            or header[6] & TRANSACTIONAL_FLAG
        ):
            return None
        return entry

    def advance(self, entry: ProducerEntry, header: ScannedBatch) -> None:
        """The batch that `entry` expected is in the log now."""
        last_sequence = (header[9] + header[10]) & SEQUENCE_MAX
        entry.add_batch(
            header[8], BatchMetadata(header[9], last_sequence, header[2], header[3], header[5])
        )
        self._idle.move_to_end(entry.producer_id)

    def apply(self, append: ProducerAppend) -> None:
        """The append's batches are in the log now."""
        for producer_id, entry in append.entries.items():
            self._put(producer_id, entry)
        for first_offset, producer_id in append.started:
            self._open(first_offset, producer_id)
        for producer_id, marker_epoch in append.verified:
            self.verifications.end(producer_id, marker_epoch)

    def recall(self, entry: ProducerEntry) -> bool:
        """Look once for the batches before those that are remembered: their retries may be under
        way. True if there may be more of them than were found.
        """
        is_partial = self._is_cut or self._snapshotted.get(entry.producer_id) == entry.epoch
        if is_partial and entry.producer_id not in self._recalled:
            self._recalled.add(entry.producer_id)
            missing = BATCHES_REMEMBERED - len(entry.batches)
            if missing > 0:
                entry.batches = (*self.search_log(entry)[-missing:], *entry.batches)
        return is_partial and len(entry.batches) < BATCHES_REMEMBERED

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset that goes into the transaction index with `completed`, as if it
        were already complete.
        """
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Called once the transaction index has it. It stays unstable until the high watermark
        passes its marker.
        """
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated.add(completed.first_offset, completed.last_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that a reader of committed records must not see yet."""
        undecided = self.first_undecided_offset
        unreplicated = self._unreplicated.first_offset
        if undecided is None or unreplicated is None:
            return unreplicated if undecided is None else undecided
        return min(undecided, unreplicated)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction, replicated or not."""
        return next(iter(self._ongoing), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def on_high_watermark(self, high_watermark: int) -> None:
        self._unreplicated.forget_before(high_watermark)

    def on_log_start(self, log_start_offset: int) -> None:
        """Producers stay known although their records are gone: retries must still be seen."""
        self._unreplicated.forget_before(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._entries)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == epoch

    def has_late_transaction(self, now_ms: int, *, transaction_timeout_max_ms: int) -> bool:
        """The oldest transaction should have been ended by its coordinator: it hangs."""
        for producer_id in self._ongoing.values():
            entry = self._entries.get(producer_id)
            if entry is None or entry.last_timestamp_ms <= 0:
                return False
            limit_ms = transaction_timeout_max_ms + LATE_TRANSACTION_BUFFER_MS
            return now_ms - entry.last_timestamp_ms > limit_ms
        return False

    def expire(self, now_ms: int) -> None:
        for producer_id in [p for p in self._idle if self._is_expired(self._entries[p], now_ms)]:
            del self._entries[producer_id]
            del self._idle[producer_id]
        self.verifications.expire(now_ms - self.expiration_ms)

    def load(self, entries: Iterable[ProducerEntry], *, end_offset: int, now_ms: int) -> None:
        """Start over from a snapshot taken at `end_offset`."""
        self.clear(end_offset)
        self._is_cut = False
        alive = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        for entry in alive:
            self._entries[entry.producer_id] = entry
            self._snapshotted[entry.producer_id] = entry.epoch
        # A snapshot does not say who was used last; timestamps come closest.
        for entry in sorted(alive, key=lambda entry: entry.last_timestamp_ms):
            self._put(entry.producer_id, entry)
        opened = [(e.transaction_first_offset, e.producer_id) for e in alive]
        for first_offset, producer_id in sorted(pair for pair in opened if pair[0] >= 0):
            self._open(first_offset, producer_id)

    def clear(self, end_offset: int) -> None:
        self._entries.clear()
        self._idle.clear()
        self._ongoing.clear()
        self._snapshotted.clear()
        self._recalled.clear()
        self._is_cut = end_offset > 0
        self._unreplicated = UnreplicatedTransactions()
        self.end_offset = end_offset

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.transaction_first_offset < 0
            and now_ms - entry.last_timestamp_ms >= self.expiration_ms
        )

    def _put(self, producer_id: int, entry: ProducerEntry) -> None:
        self._entries[producer_id] = entry
        if entry.transaction_first_offset >= 0:
            self._idle.pop(producer_id, None)
            return
        self._idle[producer_id] = None
        self._idle.move_to_end(producer_id)
        while len(self._entries) > self._producer_ids_max and len(self._idle) > 1:
            evicted, _ = self._idle.popitem(last=False)
            del self._entries[evicted]

    def _open(self, first_offset: int, producer_id: int) -> None:
        newest = next(reversed(self._ongoing), None)
        self._ongoing[first_offset] = producer_id
        if newest is not None and first_offset < newest:
            self._ongoing = OrderedDict(sorted(self._ongoing.items()))
