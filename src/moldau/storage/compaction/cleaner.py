"""Compaction of the logs of one directory: chooses the dirtiest log, hands out its pass, swaps the
results in, and records the offset up to which each log is clean (`cleaner-offset-checkpoint`).

Everything here runs in the thread that owns the logs, except `Compaction.step`, which may run in
any thread. A log has at most one pass at a time.

    none --begin--> running --finish--> none
    running --stop (pause, truncation, deletion)--> stopping --finish--> none
    none --pause--> paused(n), counted; a paused log is not chosen
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.errors import MoldauError
from moldau.storage.compaction.filter import FilterCounts
from moldau.storage.compaction.loops import SLOT_BYTES, OffsetMap
from moldau.storage.compaction.plan import CleanableLog, assess, make_plan
from moldau.storage.compaction.run import (
    CleanedGroup,
    CompactionAbortedError,
    CompactionPass,
    DamagedSourceError,
    OnIo,
)
from moldau.storage.compaction.swap import replacing_segments
from moldau.storage.directory.checkpoints import CLEANER_FILE
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.disk.failures import (
    CorruptCheckpointError,
    DirectoryOfflineError,
    DiskFullError,
)
from moldau.storage.log.log import Log
from moldau.types import FIRST_OFFSET, Offset, TopicPartition

logger = logging.getLogger(__name__)


class Compaction:
    """One pass over one log. Call `step` (any thread) and `LogCleaner.applying` (owner) in turn
    until `step` returns None, then `LogCleaner.finish`.
    """

    def __init__(
        self,
        cleanable: CleanableLog,
        config: CleanerConfig,
        hash_key: bytes,
        now_ms: int,
        on_io: OnIo,
    ) -> None:
        self.log = cleanable.log
        self.name = cleanable.log.topic_partition
        self.is_complete = False
        self.is_stopped = False
        self._has_keys = False
        plan = make_plan(cleanable, now_ms)
        self._pass = CompactionPass(
            cleanable.log.filesystem,
            plan,
            _offset_map(config, hash_key, plan.first_uncleanable_offset - plan.first_dirty_offset),
            io_buffer_bytes=config.io_buffer_bytes,
            should_stop=lambda: self.is_stopped,
            on_io=on_io,
        )

    @property
    def end_offset(self) -> Offset:
        """The first offset that is still dirty after the pass."""
        return self._pass.end_offset

    @property
    def counts(self) -> FilterCounts:
        return self._pass.counts

    def stop(self) -> None:
        """Makes a running step end soon. No further group is swapped in."""
        self.is_stopped = True

    def step(self) -> CleanedGroup | None:
        """The slow part: reads sealed segments, writes one cleaned segment. Raises
        CompactionAbortedError if the pass was stopped, KafkaError if a segment is damaged.
        """
        if not self._has_keys:
            self._pass.learn_keys()
            self._has_keys = True
        group = self._pass.clean_next_group()
        self.is_complete = group is None
        return group


def _offset_map(config: CleanerConfig, hash_key: bytes, dirty_offsets: int) -> OffsetMap:
    """Sized for the dirty offsets: a larger map could not be filled."""
    needed = (int(dirty_offsets / config.load_factor) + 2) * SLOT_BYTES
    return OffsetMap(
        memory_bytes=min(config.dedupe_buffer_bytes, max(needed, 4 * SLOT_BYTES)),
        load_factor=config.load_factor,
        hash_key=hash_key,
    )


class LogCleaner:
    """`hash_key` is sixteen random bytes; they keep clients from constructing keys that collide.
    `on_io` is called with the size of every read and write, in the thread of the pass, and may
    block to slow the pass down.
    """

    def __init__(
        self,
        directory: LogDirectory,
        config: CleanerConfig,
        hash_key: bytes,
        on_io: OnIo = lambda _bytes: None,
    ) -> None:
        self.config = config
        """Applies to passes that begin from now on."""
        self._directory = directory
        self._hash_key = hash_key
        self._on_io = on_io
        self._running: dict[TopicPartition, Compaction] = {}
        self._paused: dict[TopicPartition, int] = {}
        self._uncleanable: dict[TopicPartition, str] = {}
        self._clean_offsets = self._read_checkpoint()

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Logs whose compaction failed, with the reason; they are skipped until a restart."""
        return dict(self._uncleanable)

    def clean_offset(self, name: TopicPartition) -> Offset | None:
        return self._clean_offsets.get(name)

    def assess(self, log: Log, now_ms: int) -> CleanableLog:
        return assess(log, self._clean_offsets.get(log.topic_partition), now_ms)

    def begin(self, logs: Iterable[Log], now_ms: int) -> Compaction | None:
        """A pass over the log with the largest dirty ratio among those that are due."""
        due: list[CleanableLog] = []
        for log in logs:
            if log.config.compacts and self._is_free(log.topic_partition):
                with self._giving_up_on(log.topic_partition):
                    cleanable = self.assess(log, now_ms)
                    if cleanable.checkpoint_was_wrong:
                        self._start_over(cleanable)
                    if cleanable.is_due:
                        due.append(cleanable)
        for cleanable in sorted(due, key=lambda log: log.dirty_ratio, reverse=True):
            with self._giving_up_on(cleanable.log.topic_partition):
                return self.begin_with(cleanable, now_ms)
        return None

    @contextlib.contextmanager
    def _giving_up_on(self, name: TopicPartition) -> Iterator[None]:
        """A log that fails is skipped from now on: otherwise it would be chosen again and again
        instead of the other logs. Failures of the whole directory, and a lack of space or
        descriptors, which is temporary, are not the log's own and pass through.
        """
        try:
            yield
        except (OSError, DirectoryOfflineError, DiskFullError):
            raise
        except Exception as error:  # noqa: BLE001 - an unforeseen error concerns this log alone
            self._give_up(name, error)

    def _give_up(self, name: TopicPartition, error: Exception) -> None:
        is_foreseen = isinstance(error, MoldauError)
        reason = str(error) if is_foreseen else repr(error)
        logger.error(
            "%s will not be compacted again before a restart: %s", name, reason,
            exc_info=None if is_foreseen else error,
        )  # fmt: skip
        self._uncleanable[name] = reason

    def _start_over(self, cleanable: CleanableLog) -> None:
        name, start = cleanable.log.topic_partition, cleanable.first_dirty_offset
        known = self._clean_offsets.get(name)
        logger.warning(
            "%s: the cleaner checkpoint %s is outside of the log; continuing at %d",
            name,
            known,
            start,
        )
        self._write_clean_offset(name, start)

    def begin_with(self, cleanable: CleanableLog, now_ms: int) -> Compaction:
        """A pass over this log, whether it is due or not."""
        name = cleanable.log.topic_partition
        assert name not in self._running, f"{name} is already being compacted"
        compaction = Compaction(cleanable, self.config, self._hash_key, now_ms, self._on_io)
        self._running[name] = compaction
        return compaction

    def applying(self, compaction: Compaction, group: CleanedGroup, now_ms: int) -> Steps[None]:
        """Swap a group in. Raises CompactionAbortedError and drops the group if the pass was
        stopped or retention has removed a segment of the group.
        """
        log = compaction.log
        replaced = set(group.replaced)
        old = [segment for segment in log.segments if segment.base_offset in replaced]
        if compaction.is_stopped or len(old) != len(replaced):
            compaction.stop()
            group.cleaned.remove_files()
            raise CompactionAbortedError(f"{compaction.name}: the log changed")
        yield from replacing_segments(log, group.cleaned, old, now_ms)

    def finish(self, compaction: Compaction, failure: Exception | None = None) -> None:
        """The pass is over, successful or not; no step of it may still be running."""
        self._running.pop(compaction.name, None)
        match failure:
            case None:
                if compaction.is_complete and not compaction.is_stopped:
                    self._write_clean_offset(compaction.name, compaction.end_offset)
            case DamagedSourceError():
                for segment in compaction.log.segments:
                    if segment.path() == failure.path:
                        segment.note_damaged(failure.damaged)
            case OSError() | DiskFullError():
                with self._directory.offline_on_error:
                    raise failure
            case CompactionAbortedError() | DirectoryOfflineError():
                pass
            case _:
                self._give_up(compaction.name, failure)

    def compact(self, log: Log, now_ms: int) -> Compaction:
        """Runs one whole pass in the calling thread."""
        compaction = self.begin_with(self.assess(log, now_ms), now_ms)
        try:
            while (group := compaction.step()) is not None:
                run_here(self.applying(compaction, group, now_ms))
        except Exception as error:
            self.finish(compaction, error)
            raise
        self.finish(compaction)
        return compaction

    # Other events of a log

    def pause(self, name: TopicPartition) -> None:
        """Stops the running pass and starts none until `resume` was called as often as `pause`."""
        self._paused[name] = self._paused.get(name, 0) + 1
        self._stop(name)

    def resume(self, name: TopicPartition) -> None:
        count = self._paused.pop(name)
        if count > 1:
            self._paused[name] = count - 1

    def truncated(self, name: TopicPartition, end_offset: Offset) -> None:
        """Offsets after `end_offset` are dirty now."""
        self._stop(name)
        if self._clean_offsets.get(name, FIRST_OFFSET) > end_offset:
            self._write_clean_offset(name, end_offset)

    def forget(self, name: TopicPartition) -> None:
        """The log was deleted or moves to another directory."""
        self._stop(name)
        self._uncleanable.pop(name, None)
        if self._clean_offsets.pop(name, None) is not None:
            self._write_checkpoint()

    def adopt(self, name: TopicPartition, clean_offset: Offset) -> None:
        """The log came from another directory, cleaned up to `clean_offset`."""
        self._write_clean_offset(name, clean_offset)

    def _stop(self, name: TopicPartition) -> None:
        if name in self._running:
            self._running[name].stop()

    def _is_free(self, name: TopicPartition) -> bool:
        return not (name in self._running or name in self._paused or name in self._uncleanable)

    def _write_clean_offset(self, name: TopicPartition, offset: Offset) -> None:
        self._clean_offsets[name] = offset
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        """A failed write is harmless: the next start only compacts more than it has to."""
        self._directory.do(self._directory.writing_checkpoint(CLEANER_FILE, self._clean_offsets))

    def _read_checkpoint(self) -> dict[TopicPartition, Offset]:
        try:
            return self._directory.read_checkpoint(CLEANER_FILE)
        except CorruptCheckpointError as error:
            # Then everything counts as dirty, which costs work but does no harm.
            logger.warning("%s", error)
            return {}
