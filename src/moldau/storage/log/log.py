"""One partition's log: its segments, its offsets, and their invariants.

log start <= last stable offset <= high watermark <= log end; flushed offset <= log end. Bytes are
written before any offset moves. An OSError takes the whole directory offline; damage in the log's
own bytes takes this log offline until an operator decides (see recovery.py). One thread owns a log;
only `FlushTicket.run` may run in another.
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
from moldau.storage.segment.segment import Segment
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
        """Validate the batches, assign offsets, write them. `records` is patched in place if it is
        writable. A client sends exactly one batch. A compressed batch that expands beyond
        `output_bytes_max` is refused with MESSAGE_TOO_LARGE. Raises NotCachedError if the log must
        be read from the disk to decide whether a client's batch is a retry.
        """
        with self.damage_handler:
            context = log_append.AppendContext(
                leader_epoch, now_ms, origin, transaction_version, output_bytes_max
            )
            return log_append.append_as_leader(self, records, context)

    def preparation(self, records: Buffer, now_ms: int) -> Callable[[], PreparedBatch]:
        """The slow part of a client's append, to be run in any thread; append its result instead of
        `records`.
        """
        context = log_append.AppendContext(NO_EPOCH, now_ms, AppendOrigin.CLIENT, -1)
        return partial(log_append.prepare, records, log_append.rules_for(self, context))

    def append_as_follower(
        self, records: Buffer, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult | None:
        """Write the leader's batches with the leader's offsets. Checksums and order are verified; a
        partial last batch, and batches of an epoch later than ours, are dropped. None if all are.
        """
        with self.damage_handler:
            context = log_append.AppendContext(leader_epoch, now_ms, AppendOrigin.REPLICATION, -1)
            return log_append.append_assigned(self, records, context)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches, starting with the one that contains `offset` or the next one after it. May
        wait for the disk.
        """

        def read() -> ReadResult:
            batches = log_read.find(self, offset, max_bytes, isolation, min_one_batch=min_one_batch)
            return log_read.take(self, batches)

        with self.read_damage_handler:
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
        """The batches that `read` would return. Raises NotCachedError instead of waiting for the
        disk.
        """
        with self.read_damage_handler:
            return log_read.find(
                self, offset, max_bytes, isolation, min_one_batch=min_one_batch, reads=reads
            )

    def take(self, batches: FoundBatches, reads: CachedReads) -> ReadResult:
        """Reads the batches that `find` returned. Raises NotCachedError instead of waiting."""
        with self.read_damage_handler:
            return log_read.take(self, batches, reads)

    def adopt(self, loaded: Adopt) -> None:
        """Adopts the result, or the failure, of a thread's work for a NotCachedError."""
        with self.read_damage_handler:
            loaded()

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record at or after a time, or one of ListOffsets' special values."""
        with self.read_damage_handler:
            return log_read.offset_for_timestamp(self, timestamp_ms)

    def batch_of_time(
        self, timestamp_ms: int, start_offset: Offset, reads: CachedReads
    ) -> BatchOfTime | None:
        """The batch in which `offset_for_timestamp` would search, for callers that decode large
        batches elsewhere. Raises NotCachedError instead of waiting for the disk.
        """
        with self.read_damage_handler:
            return log_read.batch_of_time(self, timestamp_ms, start_offset, reads)

    def start_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """Records that this leader's epoch starts here, before its first record exists. That record
        also makes the epoch durable: an epoch without records is not needed after a restart.
        """
        with self.damage_handler:
            self.epochs.assign(epoch, self.log_end_offset)

    def skip_to(self, offset: Offset, now_ms: int) -> None:
        """The log being copied has no records between our end and `offset`; continue there."""
        with self.damage_handler:
            assert offset > self.log_end_offset, (offset, self.log_end_offset)
            self.roll(now_ms, offset)
            self.log_end_offset = offset
            self.producers.end_offset = offset

    # Truncation

    def truncate_to(self, offset: Offset, now_ms: int) -> bool:
        """As `truncating`, in place."""
        return run_here(self.truncating(offset, now_ms))

    def truncating(self, offset: Offset, now_ms: int) -> Steps[bool]:
        """Drop everything from `offset` on, for a follower whose leader has different records
        there. The log then ends after its last whole batch before `offset`. The result is whether
        it got shorter. Meanwhile only records before `offset` may be read, and none appended.
        """
        with self.damage_handler:
            if offset >= self.log_end_offset:
                # An epoch that started here without a record no longer belongs to any leader.
                self.epochs.truncate_from_end(self.log_end_offset)
                yield self.epochs.flush_if_possible
                return False
            if offset < self.segments[0].base_offset:
                yield from self.starting_over(offset, offset, now_ms)
                return True
            assert not self.is_swapping
            later = [s for s in self.segments if s.base_offset > offset]
            self.retire(later[::-1], now_ms)
            # Before the cut: otherwise a power failure could bring back segments after a hole.
            yield lambda: self.filesystem.sync_directory(self.path)
            active = self.segments.active
            active.truncate_to(offset)
            # Otherwise a power failure could bring the dropped batches back.
            yield from _syncing(active)
            active.created_ms = now_ms
            end_offset = active.next_offset()
            self.epochs.truncate_from_end(end_offset)
            self._end_at(end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            if not self.producers.active_producers:
                # What is left has none, either: nothing needs to be replayed.
                self.producers.end_offset = end_offset
            self.reload_producers(now_ms)
            yield self.epochs.flush_if_possible
            return True

    def end_before(self, offset: Offset) -> Offset:
        """The end of the log if it were truncated to `offset`: batches are never split."""
        with self.damage_handler:
            index = self.segments.floor_index(offset)
            return self.segments[index].end_before(offset) if index >= 0 else offset

    def starting_over(self, offset: Offset, log_start_offset: Offset, now_ms: int) -> Steps[None]:
        """Drop everything; the next record gets `offset`. Old files are unlinked, never
        truncated.
        """
        with self.damage_handler:
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
        """Reload the newest snapshot at or before the log's end, and replay from there."""
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

    # Closing

    def close(self) -> None:
        """Flush, write a producer snapshot at the end, free the handles. A failed or damaged log
        only frees its handles; closing twice is harmless.
        """
        if not self.directory.is_online or self.damage is not None or self.is_abandoned:
            self.abandon()
            return
        with self.damage_handler:
            self.producers.end_offset = self.log_end_offset
            self.snapshots.take(self.producers, sync=True)
            self._directory_is_dirty = True
            self.epochs.truncate_from_end(self.log_end_offset)
            self.epochs.flush()
            active = self.segments.active
            with refused_if_full(active.path()):
                active.seal()
        self.flush()
        self.abandon()


def _syncing(segment: Segment) -> Steps[None]:
    """Its file stays open meanwhile, as for a flush."""
    segment.pins += 1
    try:
        yield segment.file.sync
    finally:
        segment.pins -= 1
