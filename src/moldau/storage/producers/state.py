"""A partition's state of its idempotent and transactional producers: sequences, epochs, open
transactions. Pure: no files, no clock.

An append is decided first and applied after the write: `begin_append`; `add_data` or `add_marker`
per batch, which refuse it or return its duplicate and change nothing; write; `apply`; then
`complete_transaction` for each of `append.completed`.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from moldau.protocol.records.batches import TRANSACTIONAL_FLAG
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    ScannedBatch,
)
from moldau.storage.producers.append import (
    TRANSACTION_VERSION_UNKNOWN,
    AppendOrigin,
    CompletedTransaction,
    ProducerAppend,
)
from moldau.storage.producers.entry import (
    BATCHES_REMEMBERED,
    SEQUENCE_MAX,
    BatchMetadata,
    ProducerEntry,
    increment_sequence,
)
from moldau.storage.producers.verification import Verification, Verifications
from moldau.types import FIRST_OFFSET, Offset, ProducerEpoch

__all__ = [
    "TRANSACTION_VERSION_UNKNOWN",
    "AppendOrigin",
    "CompletedTransaction",
    "ProducerAppend",
    "ProducerStateTable",
]

PRODUCER_ID_EXPIRATION_MS = 86_400_000
# Kafka lets the table grow for a day; a client that invents ids could then fill the memory.
PRODUCER_IDS_MAX = 100_000
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000

SearchLog = Callable[[ProducerEntry, Callable[[list[BatchMetadata]], None]], Exception]
"""Returns the error to raise, so that a thread searches for the batches before the remembered ones.
When it is done, the second argument is called with them, oldest first.
"""


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
        end_offset: Offset = FIRST_OFFSET,
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
        self._ongoing: OrderedDict[Offset, int] = OrderedDict()
        self._unreplicated = _UnreplicatedTransactions()
        # Id -> epoch of producers that were loaded from a snapshot.
        self._snapshotted: dict[int, int] = {}
        self._recalled: set[int] = set()
        self._is_cut = False
        """The table was rebuilt from a log without its beginning."""
        self.search_log: SearchLog | None = None
        self.verifies = False
        """Whether a transaction can only be opened with a verification from its coordinator."""
        self.verifications = Verifications()

    def begin_append(
        self,
        origin: AppendOrigin,
        *,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        verification: Verification | None = None,
    ) -> ProducerAppend:
        return ProducerAppend(self, origin, transaction_version, verification)

    def expects(self, header: ScannedBatch) -> ProducerEntry | None:
        """The usual case, which must be fast: the batch is the next one of its producer, in the
        same epoch and in no transaction. Call `advance` once it is in the log. If the result is
        None, the batch needs the full check.
        """
        entry = self._entries.get(header[PRODUCER_ID])
        if (
            entry is None
            or entry.epoch != header[PRODUCER_EPOCH]
            or not entry.batches
            or entry.batches[-1].last_sequence + 1 != header[BASE_SEQUENCE]
            or entry.transaction_first_offset >= 0
            or header[ATTRIBUTES] & TRANSACTIONAL_FLAG
        ):
            return None
        return entry

    def advance(self, entry: ProducerEntry, header: ScannedBatch) -> None:
        """The batch that `entry` expected is in the log now."""
        last_sequence = (header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA]) & SEQUENCE_MAX
        entry.add_batch(
            header[PRODUCER_EPOCH],
            BatchMetadata(
                header[BASE_SEQUENCE],
                last_sequence,
                header[BASE_OFFSET],
                header[LAST_OFFSET],
                header[MAX_TIMESTAMP],
            ),
        )
        self._idle.move_to_end(entry.producer_id)

    def apply(self, append: ProducerAppend) -> None:
        """The append's batches are in the log now."""
        for producer_id, entry in append.entries.items():
            self._put(producer_id, entry)
        for first_offset, producer_id in append.started:
            self._open(first_offset, producer_id)
        for producer_id, marker_epoch in append.ended_verifications:
            self.verifications.end(producer_id, marker_epoch)

    def recall(self, entry: ProducerEntry) -> bool:
        """Search once for the batches before the remembered ones: their retries may be in flight.
        Returns True if there may be more than were found. Raises NotCachedError: call again when
        its work is done.
        """
        is_partial = self._is_cut or self._snapshotted.get(entry.producer_id) == entry.epoch
        if not is_partial or len(entry.batches) == BATCHES_REMEMBERED:
            return False
        is_first = bool(entry.batches) and entry.batches[0].first_sequence == 0
        if self.search_log is not None and not is_first and entry.producer_id not in self._recalled:
            raise self.search_log(entry, partial(self._recall, entry.producer_id, entry.epoch))
        return True

    def _recall(self, producer_id: int, epoch: ProducerEpoch, found: list[BatchMetadata]) -> None:
        """Keeps only those directly before the remembered ones: compaction and damage
        leave gaps.
        """
        if len(self._recalled) >= self._producer_ids_max:
            # Too many ids, as from a client that invents them; some will be searched for again.
            self._recalled.clear()
        self._recalled.add(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return
        known = deque(entry.batches)
        for batch in reversed(found):
            if len(known) == BATCHES_REMEMBERED:
                break
            if known and increment_sequence(batch.last_sequence, 1) != known[0].first_sequence:
                break
            known.appendleft(batch)
        entry.batches = tuple(known)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset that goes into the transaction index with `completed`, as if it
        were already complete.
        """
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Called once the transaction index has it. It stays unstable until the high watermark
        passes its marker.
        """
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated.add(completed.first_offset, completed.last_offset)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset that committed readers must not see yet."""
        unreplicated = self._unreplicated.first_offset
        if not self._ongoing:
            return unreplicated
        undecided = next(iter(self._ongoing))
        return undecided if unreplicated is None else min(undecided, unreplicated)

    @property
    def first_undecided_offset(self) -> Offset | None:
        """The first offset of the oldest open transaction, replicated or not."""
        return next(iter(self._ongoing), None)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        self._unreplicated.forget_before(high_watermark)

    def on_log_start(self, log_start_offset: Offset) -> None:
        """Producers stay known although their records are gone: retries must still be detected."""
        self._unreplicated.forget_before(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._entries)

    def has_open_transaction(self, producer_id: int, epoch: ProducerEpoch) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == epoch

    def has_late_transaction(self, now_ms: int, *, transaction_timeout_max_ms: int) -> bool:
        """Whether the coordinator should have ended the oldest transaction by now: it hangs."""
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

    def load(self, entries: Iterable[ProducerEntry], *, end_offset: Offset, now_ms: int) -> None:
        """Start over from a snapshot taken at `end_offset`."""
        self.clear(end_offset)
        self._is_cut = False
        alive = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        for entry in alive:
            self._entries[entry.producer_id] = entry
            self._snapshotted[entry.producer_id] = entry.epoch
        # A snapshot does not record the order of use; timestamps come closest.
        for entry in sorted(alive, key=lambda entry: entry.last_timestamp_ms):
            self._put(entry.producer_id, entry)
        opened = [(e.transaction_first_offset, e.producer_id) for e in alive]
        for first_offset, producer_id in sorted(pair for pair in opened if pair[0] >= 0):
            self._open(first_offset, producer_id)

    def clear(self, end_offset: Offset) -> None:
        self._entries.clear()
        self._idle.clear()
        self._ongoing.clear()
        self._snapshotted.clear()
        self._recalled.clear()
        self._is_cut = end_offset > 0
        self._unreplicated = _UnreplicatedTransactions()
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

    def _open(self, first_offset: Offset, producer_id: int) -> None:
        newest = next(reversed(self._ongoing), None)
        self._ongoing[first_offset] = producer_id
        if newest is not None and first_offset < newest:
            self._ongoing = OrderedDict(sorted(self._ongoing.items()))


class _UnreplicatedTransactions:
    """Completed transactions whose markers are not below the high watermark yet: they limit the
    last stable offset. They end in log order but may have begun in any order. The minimum of their
    starts is that of a sliding window, so each transaction costs constant time however far the high
    watermark lags.
    """

    __slots__ = ("_minima",)

    def __init__(self) -> None:
        # (first offset, last offset), both ascending; entries undercut by a later one are dropped.
        self._minima: deque[tuple[Offset, Offset]] = deque()

    @property
    def first_offset(self) -> Offset | None:
        return self._minima[0][0] if self._minima else None

    def add(self, first_offset: Offset, last_offset: Offset) -> None:
        minima = self._minima
        while minima and minima[-1][0] >= first_offset:
            minima.pop()
        minima.append((first_offset, last_offset))

    def forget_before(self, offset: Offset) -> None:
        while self._minima and self._minima[0][1] < offset:
            self._minima.popleft()
