"""One partition's log: its segments, its offsets, and what must stay true about them.

log start <= last stable offset <= high watermark <= log end; flushed offset <= log end. Bytes are
written before any of this moves. An OSError takes the whole directory offline; damage found in the
log's own bytes takes this log offline until its owner decides (see recovery.py). One thread owns a
log; only `FlushTicket.run` may happen elsewhere.
"""

from collections.abc import Callable
from functools import partial

from moldau.storage.disk.cached_reads import Adopt, CachedReads
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.disk.failures import refused_if_full
from moldau.storage.log import append as log_append
from moldau.storage.log import read as log_read
from moldau.storage.log.append import AppendResult, PreparedBatch, VerifiedBatch
from moldau.storage.log.read import (
    BatchOfTime,
    FoundBatches,
    FoundOffset,
    Isolation,
    ReadResult,
)
from moldau.storage.log.state import LoadedLog, LogOptions, LogState
from moldau.storage.producers.replay import replay_segment
from moldau.storage.producers.state import AppendOrigin
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import NO_EPOCH, Buffer, LeaderEpoch, Offset

__all__ = ["LoadedLog", "Log", "LogOptions"]


class Log(LogState):
    # Appending and reading

    def append_as_leader(
        self,
        records: Buffer | PreparedBatch | VerifiedBatch,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = -1,
        output_bytes_max: int | None = None,
    ) -> AppendResult:
        """Check the batches, give them offsets, write them. `records` is patched in place if it is
        writable. A client brings exactly one batch. A compressed one that expands beyond
        `output_bytes_max` is refused with MESSAGE_TOO_LARGE. Raises NotCachedError if nobody can
        say without the disk whether a client's batch is a retry.
        """
        with self.guard:
            caller = log_append.Caller(
                leader_epoch, now_ms, origin, transaction_version, output_bytes_max
            )
            return log_append.append_as_leader(self, records, caller)

    def preparation(self, records: Buffer, now_ms: int) -> Callable[[], PreparedBatch]:
        """The slow part of a client's append, to be run in any thread; its result is then appended
        instead of `records`.
        """
        caller = log_append.Caller(NO_EPOCH, now_ms, AppendOrigin.CLIENT, -1)
        return partial(log_append.prepare, records, log_append.rules_for(self, caller))

    def append_as_follower(
        self, records: Buffer, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult | None:
        """Write the leader's batches with the leader's offsets. Checksums and order are checked; a
        partial last batch and batches of a later epoch than ours are left out, None if all are.
        """
        with self.guard:
            caller = log_append.Caller(leader_epoch, now_ms, AppendOrigin.REPLICATION, -1)
            return log_append.append_assigned(self, records, caller)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches, the first one being that which contains `offset` or the next after it. It
        may wait for the disk.
        """

        def read() -> ReadResult:
            found = log_read.find(self, offset, max_bytes, isolation, min_one_batch=min_one_batch)
            return log_read.take(self, found)

        with self.read_guard:
            try:
                return read()
            except CorruptSegmentError as error:
                if not self.examine(error.path):
                    raise
                return read()

    def find(
        self,
        offset: Offset,
        max_bytes: int,
        reads: CachedReads,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> FoundBatches:
        """Which batches `read` would bring. Raises NotCachedError rather than wait for the disk."""
        with self.read_guard:
            return log_read.find(
                self, offset, max_bytes, isolation, min_one_batch=min_one_batch, reads=reads
            )

    def take(self, found: FoundBatches, reads: CachedReads) -> ReadResult:
        """The batches that were just found. Raises NotCachedError rather than wait."""
        with self.read_guard:
            return log_read.take(self, found, reads)

    def adopt(self, loaded: Adopt) -> None:
        """What a thread has loaded for a NotCachedError, or failed to."""
        with self.read_guard:
            loaded()

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record at or after a time, or one of ListOffsets' special values."""
        with self.read_guard:
            return log_read.offset_for_timestamp(self, timestamp_ms)

    def batch_of_time(
        self, timestamp_ms: int, start_offset: Offset, reads: CachedReads
    ) -> BatchOfTime | None:
        """Where `offset_for_timestamp` looks for a time or for the largest one, for those who look
        into large batches elsewhere. Raises NotCachedError rather than wait for the disk.
        """
        with self.read_guard:
            return log_read.batch_of_time(self, timestamp_ms, start_offset, reads)

    def start_leader_epoch(self, epoch: int) -> None:
        """We lead from here on: the epoch is known before its first record is, which also takes it
        to the disk: one that never gets a record is of no use after a restart.
        """
        with self.guard:
            self.epochs.assign(LeaderEpoch(epoch), Offset(self.log_end_offset))

    def skip_to(self, offset: Offset, now_ms: int) -> None:
        """The log we copy holds nothing from our end up to `offset`, where it goes on."""
        with self.guard:
            assert offset > self.log_end_offset, (offset, self.log_end_offset)
            self.roll(now_ms, offset)
            self.log_end_offset = offset
            self.producers.end_offset = offset

    # Truncation

    def truncate_to(self, offset: Offset, now_ms: int) -> bool:
        """Drop everything from `offset` on, as a follower whose leader has something else there.
        The log then ends where its last whole batch before `offset` does. True if it got shorter.
        """
        with self.guard:
            if offset >= self.log_end_offset:
                # An epoch may have started here without a record and belong to nobody now.
                self.epochs.truncate_from_end(Offset(self.log_end_offset))
                self.epochs.flush_if_possible()
                return False
            if offset < self.segments[0].base_offset:
                run_here(self.starting_over(offset, offset, now_ms))
                return True
            assert not self.is_swapping
            later = [s for s in self.segments if s.base_offset > offset]
            self.retire(later[::-1], now_ms)
            # Before the cut, or a power cut could bring back segments behind a hole.
            self.filesystem.sync_directory(self.path)
            active = self.segments.active
            active.truncate_to(offset)
            active.created_ms = now_ms
            end_offset = active.next_offset()
            self.epochs.truncate_from_end(Offset(end_offset))
            self.epochs.flush_if_possible()
            self._end_at(end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            self.reload_producers(now_ms)
            return True

    def end_before(self, offset: Offset) -> int:
        """Where the log would end if it were truncated to `offset`: batches are not cut."""
        with self.guard:
            place = self.segments.floor_place(offset)
            return self.segments[place].end_before(offset) if place >= 0 else offset

    def starting_over(self, offset: Offset, log_start_offset: Offset, now_ms: int) -> Steps[None]:
        """Drop everything; the next record gets `offset`. The old files are unlinked, never cut."""
        with self.guard:
            self._begin_again(offset, log_start_offset, now_ms)
            yield self.epochs.flush_if_possible
            yield lambda: self.filesystem.sync_directory(self.path)
            self.flushed_offset = max(self.flushed_offset, offset)

    def _begin_again(self, offset: Offset, log_start_offset: Offset, now_ms: int) -> None:
        assert not self.is_swapping
        self.retire(list(self.segments)[::-1], now_ms)
        segment = self.new_segment(offset, now_ms)
        segment.create()
        self.segments.add(segment)
        self.epochs.clear()
        self.snapshots.remove_all()
        self.producers.clear(offset)
        self.log_start_offset = log_start_offset
        self._end_at(offset)
        self.update_high_watermark(offset)

    def _end_at(self, end_offset: Offset) -> None:
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._owed_flush_end = min(self._owed_flush_end, end_offset)
        for ticket in self._tickets:
            ticket.end_offset = min(ticket.end_offset, end_offset)

    def reload_producers(self, now_ms: int) -> None:
        """Back to the newest snapshot at or before the log's end, and forward from there."""
        self.snapshots.reload(
            self.producers,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        start = max(self.producers.end_offset, self.log_start_offset)
        if start < self.log_end_offset:
            for segment in self.segments.overlapping(start, self.log_end_offset):
                replay_segment(self.producers, segment, start, self.log_end_offset)
        self.producers.end_offset = self.log_end_offset
        self.producers.on_high_watermark(self.high_watermark)

    # The end

    def close(self) -> None:
        """Flush, leave a producer snapshot at the end, free the handles. A failed or damaged log
        only lets go, a closed one stays closed.
        """
        if not self.directory.is_online or self.damage is not None or self.is_abandoned:
            self.abandon()
            return
        with self.guard:
            self.producers.end_offset = self.log_end_offset
            self.snapshots.take(self.producers, sync=True)
            self._directory_is_dirty = True
            self.epochs.truncate_from_end(Offset(self.log_end_offset))
            self.epochs.flush()
            active = self.segments.active
            with refused_if_full(active.path()):
                active.seal()
        self.flush()
        self.abandon()
