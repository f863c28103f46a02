"""Hands committed batches to the listeners, in the order of the log and each of them once. A leader
still has its own batches in memory; all others are read from the log. Long work is done in slices,
and never waits for the disk.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.quorum.log_start import MetadataLogError
from moldau.broker.quorum.measurements import Measurements
from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.broker.records.cold_reads import ATTEMPTS_MAX, ColdReads, changes_too_fast
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.levels import level_after
from moldau.core.metadata.loader import CommittedBatch
from moldau.core.metadata.snapshot_file import metadata_records
from moldau.net.clock import Clock
from moldau.net.slices import Slices
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.records.batches import RecordBatch, iterate_batches
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.disk.failures import NoDescriptorError
from moldau.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from moldau.broker.quorum.listener import QuorumListener

_READ_BYTES = 64 << 10
_RETRY_MS = 100


class Appended(NamedTuple):
    """A batch that this node has appended as the leader."""

    batch: CommittedBatch
    size_bytes: int
    appended_ms: float
    """In the time of the monotonic clock."""


class CommittedBatches:
    def __init__(
        self,
        log: MetadataLog,
        cold_reads: ColdReads,
        measurements: Measurements,
        clock: Clock,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_failure`: a listener cannot follow, or the log cannot be read. Nothing is delivered
        afterwards.
        """
        self.listeners: list[QuorumListener] = []
        self.appended: deque[Appended] = deque()
        """In memory, since this node leads."""
        self.next_offset = 0
        """The first offset that was not delivered yet."""
        self.level: int | None = None
        """The metadata.version after what was delivered."""
        self.size_bytes = 0
        """Size of all batches that were delivered since the start."""
        self._log = log
        self._cold_reads = cold_reads
        self._measurements = measurements
        self._clock = clock
        self._on_failure = on_failure
        self._tasks = Tasks()
        self._end_offset = 0
        self._stored: Iterator[RecordBatch] = iter(())
        self._reads = cold_reads.reads()
        self._attempts = 0
        self._is_running = False
        self._is_stopped = False
        self._when_done: Callable[[], None] | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tie_breaker = count()

    @property
    def is_done(self) -> bool:
        """Everything that is committed was delivered."""
        return self.next_offset >= self._end_offset and not self._is_running

    def prepare(self, image: MetadataImage) -> None:
        """May run in any thread: the long part of `load`, which follows."""
        for listener in self.listeners:
            listener.prepare_snapshot(image)

    def load(self, image: MetadataImage) -> None:
        """Everything up to the image's offset is replaced by it. Call `prepare` before."""
        self.level = image.metadata_version
        self.next_offset = image.offset + 1
        self.forget_appended()
        if image.offset >= 0:
            self._guarded(lambda: self._publish(image))

    def _publish(self, image: MetadataImage) -> None:
        for listener in self.listeners:
            listener.on_snapshot(image)
        self._complete_waiting()

    def forget_appended(self) -> None:
        """This node does not lead any longer: records of its own may be replaced by others."""
        self.appended.clear()

    def commit(self, end_offset: int) -> None:
        """Everything before `end_offset` is committed."""
        self._end_offset = max(self._end_offset, end_offset)
        if not self._is_running and not self._is_stopped and self.next_offset < self._end_offset:
            self._is_running = True
            self._run()

    def when_done(self, work: Callable[[], None] | None) -> None:
        """Calls `work` once everything committed so far is delivered, and none that was given
        before.
        """
        self._when_done = work
        if self.is_done:
            self._finish()

    async def wait(self, offset: int) -> None:
        """Waits until the record at `offset` is delivered."""
        if offset < self.next_offset and (not self._is_running or self._is_stopped):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tie_breaker), done))
        await done

    def refuse_waiting(self, error: KafkaError, from_offset: int = 0) -> None:
        """Fails the waits for records from there on."""
        kept = [each for each in self._waiting if each[0] < from_offset]
        refused = [each for each in self._waiting if each[0] >= from_offset]
        self._waiting = kept
        heapq.heapify(self._waiting)
        for _, _, done in refused:
            if not done.done():
                done.set_exception(error)

    async def stop(self) -> None:
        self._is_stopped = True
        await self._tasks.close()

    def _run(self) -> None:
        """One slice, of one batch at least."""
        slices = Slices()
        try:
            while self.next_offset < self._end_offset and not self._is_stopped:
                # Every slice makes some progress, however short it is.
                self._deliver_next()
                self._attempts = 0
                if slices.is_over:
                    asyncio.get_running_loop().call_soon(self._run)
                    return
        except NotCachedError as cold:
            _ = self._tasks.start(self._load(cold), "read committed metadata")
            return
        except Exception as error:  # noqa: BLE001 - whatever a listener raises
            self._fail(error)
            return
        self._guarded(self._end_commits)

    def _end_commits(self) -> None:
        for listener in self.listeners:
            listener.on_commits_end()
        self._is_running = False
        self._complete_waiting()
        self._finish()

    def _finish(self) -> None:
        work, self._when_done = self._when_done, None
        if work is not None and not self._is_stopped:
            self._guarded(work)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever a listener raises
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._is_stopped = True
        self._on_failure(error)

    async def _load(self, cold: NotCachedError) -> None:
        self._attempts += 1
        if self._attempts > ATTEMPTS_MAX:
            self._fail(changes_too_fast(self._log.path))
            return
        try:
            await self._cold_reads.load(self._log.log, cold)
        except NoDescriptorError:
            # What is committed can be delivered later.
            self._attempts = 0
            await self._clock.sleep(_RETRY_MS)
        except KafkaError as error:
            self._fail(error)
            return
        self._run()

    # The batches

    def _deliver_next(self) -> None:
        if self.appended and self.appended[0].batch.base_offset == self.next_offset:
            own = self.appended.popleft()
            self._measurements.committed(own.appended_ms)
            self._deliver(own.batch, own.size_bytes)
        else:
            stored = self._next_stored()
            self._deliver(_committed(self._log, stored), stored.size_in_bytes)

    def _next_stored(self) -> RecordBatch:
        batch = next(self._stored, None)
        if batch is None or batch.base_offset != self.next_offset:
            self._stored = self._read()
            batch = next(self._stored, None)
        if batch is None:
            raise MetadataLogError(
                f"{self._log.path}: everything before offset {self._end_offset} is committed, "
                f"but there is no record at {self.next_offset}"
            )
        return batch

    def _read(self) -> Iterator[RecordBatch]:
        """Of what is committed, so that no truncation makes it wrong."""
        log, offset, reads = self._log.log, self.next_offset, self._reads
        reads.next_log(_READ_BYTES)
        found = log.find(Offset(offset), _READ_BYTES, reads)
        records = log.take(found, reads).records
        reads.forget()
        return (batch for batch in iterate_batches(records) if batch.base_offset >= offset)

    def _deliver(self, batch: CommittedBatch, size_bytes: int) -> None:
        self.next_offset = batch.last_offset + 1
        self.size_bytes += size_bytes
        self.level = level_after(batch.records, self.level)
        for listener in self.listeners:
            listener.on_committed(batch)

    def _complete_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] < self.next_offset:
            done = heapq.heappop(self._waiting)[2]
            if not done.done():
                done.set_result(None)


def _committed(log: MetadataLog, batch: RecordBatch) -> CommittedBatch:
    try:
        records = [] if batch.is_control else metadata_records(batch)
    except (KafkaError, MalformedRequestError) as error:
        raise MetadataLogError(
            f"{log.path}: the batch at offset {batch.base_offset} cannot be decoded: {error}"
        ) from error
    return CommittedBatch(
        Offset(batch.base_offset),
        Offset(batch.last_offset),
        LeaderEpoch(batch.partition_leader_epoch),
        batch.max_timestamp,
        records,
    )
