"""What a log consists of, and the parts of its life that appending, reading and truncation share:
offsets, segments that begin and end, flushing, damage.

log start <= last stable offset <= high watermark <= log end; flushed offset <= log end.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from moldau.config.log import LogConfig
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.damage import Damage, note_damage
from moldau.storage.directory import LogDirectory
from moldau.storage.epochs import LeaderEpochCache
from moldau.storage.failures import DamagedFileError, DiskFullError, refused_if_full
from moldau.storage.flushing import FlushTicket, GroupFlusher
from moldau.storage.log_names import DELETED_SUFFIX
from moldau.storage.producer_replay import earlier_batches
from moldau.storage.producer_snapshots import ProducerSnapshots
from moldau.storage.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerStateTable
from moldau.storage.segment import Segment, SegmentSettings
from moldau.storage.segments import Segments
from moldau.types import Offset, TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.storage.filesystem import File
    from moldau.storage.log_append import LeaderRules


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class LoadedLog:
    """What loading or recovery found out."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateTable
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    flushed_offset: int
    damage: Damage | None = None


@frozen(kw_only=True)
class LogOptions:
    """What a log is given by the node that it lives in."""

    config: LogConfig
    flush_policy: str = "os"
    flusher: GroupFlusher | None = None
    jitter: Callable[[int], int] = lambda _bound_ms: 0
    """A random number from 0 up to and with its argument."""
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    verifies_transactions: bool = False
    """A log that stands alone has no coordinator to ask."""


class LogState:
    def __init__(
        self,
        directory: LogDirectory,
        path: Path,
        topic_partition: TopicPartition,
        options: LogOptions,
        loaded: LoadedLog,
    ) -> None:
        self.directory = directory
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id: Uuid | None = None
        self.config = options.config
        self.flush_policy = options.flush_policy
        self.filesystem = directory.filesystem
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.producers.search_log = lambda entry: earlier_batches(self.segments, entry)
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.high_watermark
        self.flushed_offset = loaded.flushed_offset
        self.appended_bytes = 0
        """Since it was opened; never less."""
        self.damage = loaded.damage
        self.guard = _LogGuard(self)
        self.leader_rules: LeaderRules | None = None
        self._flusher = options.flusher
        self._jitter = options.jitter
        self._is_marked = False
        self._directory_is_dirty = True
        self._unsynced_paths: list[Path] = []
        # Their batches may be flushed, their indexes are not.
        self._unsynced_seals: list[Segment] = []
        self._tickets: list[FlushTicket] = []
        self.is_abandoned = False
        self._deleted: deque[tuple[int, Segment | None, Path | None]] = deque()
        self.producers.on_high_watermark(self.high_watermark)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}), "
            f"high_watermark={self.high_watermark})"
        )

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        if self.producers.first_unstable_offset is None:
            return self.high_watermark
        stable = self.producers.last_stable_offset(self.high_watermark)
        return max(stable, min(self.log_start_offset, self.high_watermark))

    @property
    def countable_end_offset(self) -> int:
        """What acks=all and a follower's fetch may count as held by this replica."""
        return self.log_end_offset if self.flush_policy == "os" else self.flushed_offset

    @property
    def recovery_point(self) -> int:
        """All before it is on the disk, with what a start after a crash does not rebuild."""
        unwritten_from = self.epochs.unwritten_from
        if unwritten_from is None:
            return self.flushed_offset
        return min(self.flushed_offset, unwritten_from)

    def update_high_watermark(self, offset: int) -> int:
        """A follower takes its leader's word, within its own log; it may fall."""
        self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
        self.producers.on_high_watermark(self.high_watermark)
        return self.high_watermark

    def raise_high_watermark(self, offset: int) -> bool:
        """A leader's never falls. True if it rose."""
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def advance_log_start(self, offset: int) -> bool:
        """Records before `offset` are deleted. True if there were any."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} cannot start at {offset}: "
                f"the high watermark is {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.flushed_offset = max(self.flushed_offset, offset)
        self.epochs.truncate_from_start(Offset(offset))
        self.producers.on_log_start(offset)
        return True

    # Segments

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        settings = SegmentSettings(
            self.config.index_interval_bytes, self.config.segment_index_bytes
        )
        segment = Segment(self.filesystem, self.path, base_offset, settings, created_ms=now_ms)
        jitter_max_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter_max_ms:
            segment.roll_jitter_ms = self._jitter(jitter_max_ms)
        return segment

    def roll(self, now_ms: int, first_offset: int = 0) -> Segment:
        """Seal the active segment and begin the next one, at the log's end or at `first_offset` if
        that lies beyond it.
        """
        with self.guard:
            base_offset = max(first_offset, self.log_end_offset)
            active = self.segments.active
            if active.base_offset == base_offset:
                # Nothing in it yet: it is as new as a new one.
                return active
            with refused_if_full(active.path()):
                active.seal()
            self._unsynced_seals.append(active)
            if self.config.compacts:
                # Compaction leaves gaps between segments, so nobody could tell one that a power
                # cut made by losing this segment's end and keeping the next one.
                self.flush()
            segment = self.new_segment(base_offset, now_ms)
            try:
                with refused_if_full(segment.path()):
                    segment.create()
            except DiskFullError:
                segment.remove_files()
                active.sealed = False
                raise
            self.segments.add(segment)
            self._directory_is_dirty = True
            # The snapshot lies where the segment begins: recovering the segment starts from it.
            self.producers.end_offset = base_offset
            snapshot = self.snapshots.take(self.producers, sync=False)
            if snapshot is not None:
                self._unsynced_paths.append(snapshot)
            self.mark_dirty()
            return segment

    def retire(self, segments: list[Segment], now_ms: int) -> None:
        """First step of deletion: out of the log, `.deleted` on disk. The order of `segments` is
        kept, so that a crash half way leaves no hole.
        """
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments:
            segment.change_life(DELETED_SUFFIX)
            self.segments.remove(segment)
            snapshot = self.snapshots.mark_deleted(segment.base_offset)
            self._deleted.append((due_ms, segment, snapshot))

    def remove_deleted(self, now_ms: int) -> int:
        """Second step, file.delete.delay.ms later: the files go. How many segments went."""
        removed = 0
        with self.guard:
            # A running flush may still hold their files.
            while self._deleted and self._deleted[0][0] <= now_ms and not self._tickets:
                _, segment, snapshot = self._deleted[0]
                if segment is not None:
                    segment.remove_files()
                if snapshot is not None:
                    self.filesystem.remove(snapshot)
                self._deleted.popleft()
                removed += 1
        return removed

    # Durability

    def mark_dirty(self) -> None:
        """Something was written that the next flush round should cover."""
        if self._flusher is not None and not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def begin_flush(self, *, everything: bool = False) -> FlushTicket:
        """The policy `os` flushes sealed segments only, unless `everything` is asked for."""
        with self.guard:
            active = self.segments.active
            whole = everything or self.flush_policy != "os"
            end_offset = self.log_end_offset if whole else active.base_offset
            dirty = self.segments.overlapping(self.flushed_offset, end_offset)
            sealed = self._unsynced_seals
            dirty += [s for s in sealed if s in self.segments and s not in dirty]
            files: list[File] = []
            paths, self._unsynced_paths = self._unsynced_paths, []
            for segment in dirty:
                segment.pins += 1
            try:
                for segment in dirty:
                    paths += segment.paths_to_sync()[1 if segment is active else 0 :]
                    if segment is active:
                        # At hand, and synced again and again.
                        files.append(segment.file)
            except BaseException:
                # Perhaps there was no descriptor: then all of it is for the next time.
                self._unsynced_paths = list(dict.fromkeys(paths))
                for segment in dirty:
                    segment.pins -= 1
                raise
            self._is_marked = False
            self._unsynced_seals = []
            directories = [self.path] if self._directory_is_dirty else []
            self._directory_is_dirty = False
            # What was refused before may be among it twice.
            paths = list(dict.fromkeys(paths))
            ticket = FlushTicket(
                self,
                end_offset,
                files=files,
                paths=paths,
                directories=directories,
                epochs=self.epochs if self.epochs.is_behind else None,
            )
            ticket.segments = dirty
            self._tickets.append(ticket)
            return ticket

    def finish_flush(self, ticket: FlushTicket) -> None:
        self._tickets.remove(ticket)
        for segment in ticket.segments:
            segment.pins -= 1
        if self.is_abandoned:
            self.abandon()
        if ticket.error is not None:
            if ticket.is_refused and not self.is_abandoned:
                self._take_back(ticket)
            with self.directory.guard:
                raise ticket.error
        if self.is_abandoned:
            return
        with self.guard:
            self.flushed_offset = max(self.flushed_offset, ticket.end_offset)

    def _take_back(self, ticket: FlushTicket) -> None:
        """Nothing of it failed, some of it was not tried: all of it is for the next one."""
        self._unsynced_paths += ticket.paths
        self._unsynced_seals += [s for s in ticket.segments if s not in self._unsynced_seals]
        self._directory_is_dirty = True
        self.mark_dirty()

    def flush(self) -> None:
        """Everything written so far is on the disk when this returns."""
        ticket = self.begin_flush(everything=True)
        ticket.run()
        self.finish_flush(ticket)

    def abandon(self) -> None:
        """Free the handles, write nothing; when the last running flush is back, if there is one."""
        self.is_abandoned = True
        if self._flusher is not None:
            self._flusher.forget(self)
        if not self._tickets:
            for segment in self.segments:
                segment.abandon()
            for _, retired, _ in self._deleted:
                if retired is not None:
                    retired.abandon()

    def moved_to(self, path: Path) -> None:
        """The directory was renamed."""
        self.path = path
        for ticket in self._tickets:
            # It looks for files under the old name.
            ticket.end_offset = min(ticket.end_offset, self.flushed_offset)
            self._unsynced_seals += [segment for segment in ticket.segments if segment.sealed]
        self._directory_is_dirty = True
        self.mark_dirty()
        for segment in self.segments:
            segment.moved_to(path)
        for _, retired, _ in self._deleted:
            if retired is not None:
                retired.moved_to(path)
        self._deleted = deque(
            (due_ms, retired, snapshot and path / snapshot.name)
            for due_ms, retired, snapshot in self._deleted
        )
        self.snapshots.move_to(path)
        self.epochs.moved_to(path / self.epochs.path.name)

    def note_damage(self, error: DamagedFileError) -> None:
        """Offline from now on, and the next start looks at every batch."""
        digits = error.path.name[:20]
        base_offset = int(digits) if digits.isdecimal() else self.log_start_offset
        promised_end = max(self.high_watermark, self.flushed_offset)
        self.damage = Damage(base_offset, promised_end, base_offset, error.reason)
        with self.directory.guard:
            note_damage(self.filesystem, self.path, str(error))


class _LogGuard:
    """Around everything that touches the log's files."""

    __slots__ = ("_enter", "_exit", "_log")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._enter = log.directory.guard.__enter__
        self._exit = log.directory.guard.__exit__

    def __enter__(self) -> None:
        self._enter()
        damage = self._log.damage
        if self._log.is_abandoned:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.topic_partition} is closed or deleted"
            )
        if damage is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._log.topic_partition} is damaged from offset {damage.first_offset} "
                f"to {damage.promised_end}: {damage.reason}",
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if isinstance(error, DamagedFileError):
            self._log.note_damage(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._exit(kind, error, trace)
