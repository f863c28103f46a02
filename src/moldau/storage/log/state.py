"""The state of a log, and the operations that appending, reading and truncation share: offsets,
the life of segments, flushing, damage.

log start <= last stable offset <= high watermark <= log end; flushed offset <= log end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.config.log import LogConfig
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.disk.failures import DiskFullError, refused_if_full
from moldau.storage.log import damage_handling as log_damage
from moldau.storage.log.damage_handling import DamageHandler
from moldau.storage.log.deleted_segments import DeletedSegment, DeletedSegments
from moldau.storage.log.epochs import LeaderEpochCache
from moldau.storage.log.flushing import FlushTicket, GroupFlusher
from moldau.storage.log.names import DELETED_SUFFIX, ROLLED_SUFFIX
from moldau.storage.producers.forgotten_batches import ForgottenBatches
from moldau.storage.producers.snapshots import ProducerSnapshots
from moldau.storage.producers.state import PRODUCER_ID_EXPIRATION_MS, ProducerStateTable
from moldau.storage.segment.segment import Segment, SegmentSettings
from moldau.storage.segment.segments import Segments
from moldau.types import FIRST_OFFSET, Offset, TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.storage.disk.filesystem import File
    from moldau.storage.log.append import LeaderRules
    from moldau.storage.log.damage import Damage
    from moldau.storage.log.damaged_bytes import DamagedBytes


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class LoadedLog:
    """The result of loading or recovery."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateTable
    snapshots: ProducerSnapshots
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    flushed_offset: Offset
    damage: "Damage | None" = None


@frozen(kw_only=True)
class LogOptions:
    """The options that a node passes to its logs."""

    config: LogConfig
    flush_policy: str = "os"
    flusher: GroupFlusher | None = None
    syncs_later: bool = False
    """Appends and rolls leave all syncs to the flusher, and appends are acknowledged after them."""
    jitter: Callable[[int], int] = lambda _bound_ms: 0
    """A random number from 0 up to and including its argument."""
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    verifies_transactions: bool = False
    """False without a broker: there is no coordinator that could verify."""


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
        self.producers.search_log = ForgottenBatches(self.segments).search
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.high_watermark
        self.flushed_offset = loaded.flushed_offset
        self.appended_bytes = 0
        """Counts since the log was opened; never decreases."""
        self.damage = loaded.damage
        self.damage_handler = DamageHandler(self)
        self.read_damage_handler = DamageHandler(self, reads_only=True)
        log_damage.watch(self)
        self.leader_rules: LeaderRules | None = None
        self._flusher = options.flusher
        self._syncs_later = options.syncs_later
        self._jitter = options.jitter
        self._is_marked = False
        self._owed_flush_end = 0
        self._directory_is_dirty = True
        self._unsynced_paths: list[Path] = []
        # Segments whose batches may be flushed, but not their indexes.
        self._unsynced_seals: list[Segment] = []
        self._rolled = [segment for segment in self.segments if segment.is_rolled]
        self._tickets: list[FlushTicket] = []
        self.is_abandoned = False
        self.is_swapping = False
        """Compaction is replacing segments: no other operation may remove any in the meantime."""
        self._deleted = DeletedSegments()
        self.producers.on_high_watermark(self.high_watermark)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}), "
            f"high_watermark={self.high_watermark})"
        )

    # Offsets

    @property
    def last_stable_offset(self) -> Offset:
        if self.producers.first_unstable_offset is None:
            return self.high_watermark
        stable = self.producers.last_stable_offset(self.high_watermark)
        return max(stable, min(self.log_start_offset, self.high_watermark))

    @property
    def countable_end_offset(self) -> Offset:
        """The end of the records that acks=all and a follower's fetch may count on this replica."""
        if self.flush_policy == "os" and not self.owes_flush:
            return self.log_end_offset
        return self.flushed_offset

    @property
    def owes_flush(self) -> bool:
        """Whether records exist that must not be acknowledged before they are on the disk."""
        return self.flushed_offset < self._owed_flush_end

    @property
    def awaits_flush(self) -> bool:
        """Whether the next flush round will sync the log."""
        return self._is_marked

    @property
    def recovery_point(self) -> Offset:
        """Everything before it is durable, including the state that a start after a crash cannot
        rebuild.
        """
        unwritten_from = self.epochs.unwritten_from
        if unwritten_from is None:
            return self.flushed_offset
        return min(self.flushed_offset, unwritten_from)

    def update_high_watermark(self, offset: Offset) -> Offset:
        """A follower adopts its leader's value, capped at its own log end; it may fall."""
        self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
        self.producers.on_high_watermark(self.high_watermark)
        return self.high_watermark

    def raise_high_watermark(self, offset: Offset) -> bool:
        """A leader's high watermark never falls. Returns True if it rose."""
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def advance_log_start(self, offset: Offset) -> bool:
        """Delete the records before `offset`. Returns True if there were any."""
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
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        return True

    # Segments

    def new_segment(self, base_offset: Offset, now_ms: int, life: str = "") -> Segment:
        settings = SegmentSettings(
            self.config.index_interval_bytes, self.config.segment_index_bytes
        )
        segment = Segment(
            self.filesystem, self.path, base_offset, settings, created_ms=now_ms, life=life
        )
        jitter_max_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter_max_ms:
            segment.roll_jitter_ms = self._jitter(jitter_max_ms)
        return segment

    def roll(self, now_ms: int, first_offset: Offset = FIRST_OFFSET) -> Segment:
        """Seal the active segment and begin the next one, at the log's end or at `first_offset` if
        that is later.
        """
        with self.damage_handler:
            base_offset = max(first_offset, self.log_end_offset)
            active = self.segments.active
            if active.base_offset == base_offset:
                # The active segment is empty, so it can serve as the new one.
                return active
            with refused_if_full(active.path()):
                active.seal()
            self._unsynced_seals.append(active)
            segment = self.new_segment(base_offset, now_ms, self._life_of_next(base_offset))
            try:
                with refused_if_full(segment.path()):
                    segment.create()
            except DiskFullError:
                segment.remove_files()
                active.sealed = False
                raise
            self.segments.add(segment)
            if segment.is_rolled:
                self._rolled.append(segment)
            self._directory_is_dirty = True
            # The snapshot is taken at the segment's start: a recovery of the segment begins from
            # it.
            self.producers.end_offset = base_offset
            snapshot = self.snapshots.take(self.producers, sync=False)
            if snapshot is not None:
                self._unsynced_paths.append(snapshot)
            self.mark_dirty()
            return segment

    def _life_of_next(self, base_offset: Offset) -> str:
        """Compaction leaves gaps between segments. A gap may also come from a power failure that
        lost the end of this segment and kept the next one. The next segment's file name
        distinguishes the two: it becomes final only when this segment is on the disk.
        """
        if not self.config.compacts or self.flushed_offset >= self.log_end_offset:
            return ""
        if self._syncs_later and base_offset == self.log_end_offset:
            return ROLLED_SUFFIX
        self.flush()
        return ""

    def retire(self, segments: list[Segment], now_ms: int) -> None:
        """First step of deletion: removed from the log, `.deleted` on disk. The order of `segments`
        is kept, so that a crash half way leaves no hole.
        """
        for segment in segments:
            self.retire_later([segment], now_ms)()

    def retire_later(self, segments: list[Segment], now_ms: int) -> Callable[[], None]:
        """Marks their files as deleted; they stay readable until the returned function is
        called.
        """
        due_ms = now_ms + self.config.file_delete_delay_ms
        marked: list[DeletedSegment] = []
        for segment in segments:
            segment.change_life(DELETED_SUFFIX)
            snapshot = self.snapshots.mark_deleted(segment.base_offset)
            marked.append(DeletedSegment(due_ms, segment, snapshot))

        def retire() -> None:
            for segment in segments:
                self.segments.remove(segment)
            self._deleted.add(marked)

        return retire

    def remove_deleted(self, now_ms: int) -> int:
        return run_here(self.removing_deleted(now_ms))

    def removing_deleted(self, now_ms: int, count_max: int | None = None) -> Steps[int]:
        """Second step, file.delete.delay.ms later. Returns the number of segments."""
        if self._tickets or self.is_swapping:
            # A flush may still hold their files. And until a swap is over, a segment that is being
            # read may have the name of one that was removed before.
            return 0
        with self.damage_handler:
            return (yield from self._deleted.removing(self.filesystem, now_ms, count_max))

    # Durability

    def mark_dirty(self) -> None:
        """Something was written that the next flush round should cover."""
        if self._flusher is not None and not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def begin_flush(self, *, everything: bool = False) -> FlushTicket:
        """The policy `os` flushes sealed segments only, unless `everything` is set."""
        with self.damage_handler:
            active = self.segments.active
            whole = everything or self.flush_policy != "os" or self.owes_flush
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
                        # Open already, and synced again and again.
                        files.append(segment.file)
            except BaseException:
                # Perhaps no descriptor was free: then all paths wait for the next flush.
                self._unsynced_paths = list(dict.fromkeys(paths))
                for segment in dirty:
                    segment.pins -= 1
                raise
            self._is_marked = False
            self._unsynced_seals = []
            directories = [self.path] if self._directory_is_dirty else []
            self._directory_is_dirty = False
            # Paths refused earlier may be in the list twice.
            paths = list(dict.fromkeys(paths))
            ticket = FlushTicket(
                self,
                end_offset,
                files=files,
                paths=paths,
                directories=directories,
                epochs=self.epochs if self.epochs.has_unwritten_changes else None,
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
            with self.directory.offline_on_error:
                raise ticket.error
        if self.is_abandoned:
            return
        with self.damage_handler:
            named_end = self._name_rolled(ticket)
            self.flushed_offset = max(self.flushed_offset, named_end)

    def _name_rolled(self, ticket: FlushTicket) -> Offset:
        """The end offset that the ticket makes durable. For segments that get their final names
        now, it counts only after the next flush has synced those names: Kafka knows the segments by
        no others.
        """
        if not self._rolled:
            return ticket.end_offset
        # Some may be retired.
        waiting = [segment for segment in self._rolled if segment.is_rolled]
        rolled = [segment for segment in waiting if segment.base_offset <= ticket.end_offset]
        self._rolled = waiting[len(rolled) :]
        if not rolled:
            return ticket.end_offset
        for segment in rolled:
            segment.take_final_name()
        self._forget_paths_of(rolled)
        self._directory_is_dirty = True
        self.mark_dirty()
        return rolled[0].base_offset

    def _forget_paths_of(self, renamed: list[Segment]) -> None:
        """Running flushes look for these files under their old names."""
        for ticket in self._tickets:
            missed = [s for s in ticket.segments if s in renamed and s.sealed]
            if missed:
                ticket.end_offset = min(ticket.end_offset, missed[0].base_offset)
                self._unsynced_seals += [s for s in missed if s not in self._unsynced_seals]

    def _take_back(self, ticket: FlushTicket) -> None:
        """No sync failed, but some were not tried: everything is left to the next flush."""
        self._unsynced_paths += ticket.paths
        self._unsynced_seals += [s for s in ticket.segments if s not in self._unsynced_seals]
        self._directory_is_dirty = True
        self.mark_dirty()

    def flush(self, *, may_owe: bool = False) -> None:
        """On return everything written so far is on the disk; or, if syncs are left to the flusher,
        will be before the append is acknowledged.
        """
        if may_owe and self._syncs_later:
            self._owed_flush_end = self.log_end_offset
            self.mark_dirty()
            return
        is_over = False
        while not is_over:
            ticket = self.begin_flush(everything=True)
            ticket.run()
            self.finish_flush(ticket)
            # Two rounds if segments got their final names.
            is_over = self.is_abandoned or self.flushed_offset >= ticket.end_offset

    def abandon(self) -> None:
        """Write nothing, and free the handles: at once, or when the last running flush is
        finished.
        """
        self.is_abandoned = True
        if self._flusher is not None:
            self._flusher.forget(self)
        if not self._tickets:
            for segment in self.segments:
                segment.abandon()
            self._deleted.abandon()

    def moved_to(self, path: Path) -> None:
        """The directory was renamed."""
        self.path = path
        for ticket in self._tickets:
            # Running flushes look for files under the old name.
            ticket.end_offset = min(ticket.end_offset, self.flushed_offset)
            self._unsynced_seals += [segment for segment in ticket.segments if segment.sealed]
        self._directory_is_dirty = True
        self.mark_dirty()
        for segment in self.segments:
            segment.moved_to(path)
        self._deleted.moved_to(path)
        self.snapshots.move_to(path)
        self.epochs.moved_to(path / self.epochs.path.name)

    # Damage

    @property
    def damaged(self) -> "list[tuple[Segment, DamagedBytes]]":
        """Damaged bytes of the log, while the rest of it is readable."""
        start = self.log_start_offset
        return [
            (segment, each)
            for segment in self.segments
            for each in segment.damaged
            if max(each.first_offset, start) < each.next_offset
        ]

    def examine(self, path: Path) -> bool:
        """Search the segment at that path for damage. Returns whether there is any."""
        return log_damage.examine(self, path)
