"""One partition that has a replica here: the log, and the leader's state machine. Appends and the
notifications of their commit go through here.
"""

import asyncio
import contextlib
import logging
from bisect import insort
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from moldau.core.metadata.image import PartitionImage
from moldau.core.partition.leader import ACKS_ALL, Commit, Effect, PartitionLeader, ProposeIsr
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.log.append import AppendResult, PreparedBatch, VerifiedBatch
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.storage.producers.append import AppendOrigin, begin_verification
from moldau.storage.producers.verification import Verification
from moldau.types import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    TopicPartition,
    Uuid,
)
from moldau.unexpected import apart

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)
_OFFSET: Final = 0
"""The index of the offset in what waits for the high watermark."""
_AFTER_COMMIT = "a callback after a commit"
_READER = "notifying a reader"

OnCommitted = Callable[[KafkaError | None], None]


class Watcher(Protocol):
    """Waits for more to read."""

    def more(self, partition: "Partition", size_bytes: int) -> None:
        """About `size_bytes` more can be read: an estimate that may be too high, never too low."""

    def changed(self, partition: "Partition") -> None:
        """It is unknown how many more bytes can be read, or the partition can no longer be read."""


ProposesIsr = Callable[["Partition", ProposeIsr], None]


class Partition:
    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        clock: "Clock",
        propose_isr: ProposesIsr,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader: PartitionLeader | None = None
        self.leader_id: BrokerId = NO_LEADER
        self.leader_epoch = -1
        self.min_insync_replicas = 1
        self.failure: KafkaError | None = None
        """Why the log cannot be used."""
        self._clock = clock
        self._propose_isr = propose_isr
        self._log: Log | None = None
        # By offset, which is the order of the appends.
        self._waiting: deque[tuple[Offset, OnCommitted]] = deque()
        self._watchers: dict[Isolation, dict[Watcher, None]] = {kind: {} for kind in Isolation}
        # Base offset and size of each append that is not committed.
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        self._stable_end = self._visible_end = 0

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, leader={self.leader_id}/{self.leader_epoch})"

    # Requests

    @property
    def log(self) -> Log:
        """Raises KAFKA_STORAGE_ERROR if there is no log; using a failed one raises it, too."""
        if self._log is None:
            raise self.failure or KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} has no log"
            )
        return self._log

    @property
    def keeps_codecs(self) -> bool:
        """Batches are stored as their producers compressed them."""
        return self.log.config.compression_type == "producer"

    @property
    def has_log(self) -> bool:
        return self._log is not None

    def leading(self, current_leader_epoch: LeaderEpoch = NO_EPOCH) -> PartitionLeader:
        """Raises the client's error if this broker is not the leader, or the epoch is wrong."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            raise self._other_epoch(current_leader_epoch)
        if self.leader is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} is led by {self.leader_id}",
            )
        return self.leader

    def append(
        self,
        records: Buffer | PreparedBatch | VerifiedBatch,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        required_acks: int = ACKS_ALL,
        transaction_version: int = -1,
        output_bytes_max: int | None = None,
    ) -> AppendResult:
        """`records` are patched in place if they are writable. Raises KafkaError; then nothing is
        appended. The other arguments are those of `Log.append_as_leader`.
        """
        leader = self.leader or self.leading()
        refused = leader.plan_append(required_acks)
        if refused is not None:
            raise KafkaError(refused.code, refused.detail)
        log = self._log or self.log
        start, bytes_before = log.log_end_offset, log.appended_bytes
        result = log.append_as_leader(
            records,
            leader.leader_epoch,
            self._clock.wall_ms(),
            origin=origin,
            transaction_version=transaction_version,
            output_bytes_max=output_bytes_max,
        )
        appended_bytes = log.appended_bytes - bytes_before
        self._uncommitted.append((start, appended_bytes))
        held = log.countable_end_offset
        if held > leader.high_watermark:
            self._run(leader.log_reached(Offset(held)))
        if leader.has_followers:
            # They read uncommitted data: that is how it gets committed.
            self._notify_more(Isolation.LOG_END, appended_bytes)
        return result

    def begin_verification(
        self, producer_id: int, epoch: ProducerEpoch, sequence: int, *, adds: bool
    ) -> Verification | None:
        """The verification that an append passes in a `VerifiedBatch` to open a transaction; None
        if it needs none.
        """
        self.leading()
        batch = producer_id, epoch, sequence
        return begin_verification(
            self.log.producers, batch, adds=adds, now_ms=self._clock.wall_ms()
        )

    async def prepare(self, records: Buffer, threads: Executor) -> PreparedBatch:
        """The slow part of an append, in a thread. The caller must own `records`."""
        preparation = self.log.preparation(records, self._clock.wall_ms())
        return await asyncio.get_running_loop().run_in_executor(threads, preparation)

    def is_committed(self, offset: Offset) -> bool:
        return self.leader is not None and self.leader.high_watermark > offset

    def on_committed(self, offset: Offset, callback: OnCommitted) -> None:
        """Calls back once the high watermark is past `offset`, or with the reason why that will
        never be known. At once if the outcome is known now.
        """
        if self.leader is None or self._log is None:
            callback(self.failure or self._leadership_moved())
        elif self.leader.high_watermark > offset:
            callback(self._commit_refusal())
        elif not self._waiting or self._waiting[-1][_OFFSET] <= offset:
            self._waiting.append((offset, callback))
        else:
            insort(self._waiting, (offset, callback), key=itemgetter(_OFFSET))

    def wait_committed(self, offset: Offset) -> asyncio.Future[None]:
        """Like `on_committed`, for coroutines."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(error: KafkaError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.on_committed(offset, complete)
        return done

    def watch(self, watcher: Watcher, isolation: Isolation) -> None:
        """Notifies the watcher, until `unwatch`, when readers might see more, or might be
        refused.
        """
        self._watchers[isolation][watcher] = None

    def unwatch(self, watcher: Watcher, isolation: Isolation) -> None:
        self._watchers[isolation].pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        return sum(map(len, self._watchers.values()))

    # Events

    def log_advanced(self, failure: KafkaError | None = None) -> None:
        """The log grew, or more of it is flushed. After a `failure` to do so, requests that wait
        for a commit fail at once, although it may still happen.
        """
        if failure is not None:
            self._fail_waiting(failure)
            return
        leader, log = self.leader, self._log
        if leader is not None and log is not None:
            held = log.countable_end_offset
            if held > leader.high_watermark:
                self._run(leader.log_reached(Offset(held)))

    def follower_fetched(self, broker_id: BrokerId, offset: Offset) -> None:
        """A follower has fetched up to `offset`. Raises if it is not a replica."""
        leader = self.leading()
        refused = leader.plan_fetch(broker_id)
        if refused is not None:
            raise KafkaError(refused.code, refused.detail)
        self._run(leader.follower_fetched(broker_id, Offset(offset)))

    def use_log(self, log: Log) -> None:
        self._log = log
        self.failure = None
        if self.leader is not None:
            self._start_epoch(self.leader.partition)

    def lose_log(self, failure: KafkaError) -> None:
        """Its directory failed. The metadata may still name this broker as the leader for a
        while.
        """
        self._log = None
        self.failure = failure
        self._fail_waiting(failure)
        self._wake_watchers()

    def lead(self, partition: PartitionImage) -> None:
        """This broker is the leader, from now on or still."""
        self.leader_id = BrokerId(partition.leader)
        is_new_epoch = self.leader is None or partition.leader_epoch > self.leader_epoch
        self.leader_epoch = partition.leader_epoch
        if not is_new_epoch and self.leader is not None:
            self._run(self.leader.changed(partition))
            return
        self._fail_waiting(self._leadership_moved())
        self._start_epoch(partition)
        self._wake_watchers()

    def follow(self, partition: PartitionImage) -> None:
        """Another broker is the leader, or there is none."""
        self.leader = None
        self.leader_id = BrokerId(partition.leader)
        self.leader_epoch = partition.leader_epoch
        self._fail_waiting(self._leadership_moved())
        self._wake_watchers()

    def close(self, reason: KafkaError) -> None:
        """This broker no longer has a replica."""
        self.leader = None
        self.leader_id = NO_LEADER
        self.lose_log(reason)

    def min_insync_replicas_changed(self, min_insync_replicas: int) -> None:
        self.min_insync_replicas = min_insync_replicas
        if self.leader is not None:
            self._run(self.leader.min_insync_replicas_changed(min_insync_replicas))

    def _start_epoch(self, partition: PartitionImage) -> None:
        log_end = high_watermark = 0
        self._uncommitted.clear()
        if self._log is not None:
            # On a full disk the first append writes it; a failed log refuses every use.
            with contextlib.suppress(KafkaError):
                self._log.start_leader_epoch(partition.leader_epoch)
            log_end, high_watermark = self._log.log_end_offset, self._log.high_watermark
            self._stable_end, self._visible_end = self._log.last_stable_offset, high_watermark
        self.leader = PartitionLeader(
            BrokerId(partition.leader),
            partition,
            min_insync_replicas=self.min_insync_replicas,
            log_end=Offset(log_end),
            high_watermark=Offset(high_watermark),
        )
        self.log_advanced()

    def _run(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Commit(high_watermark):
                    self.log.raise_high_watermark(high_watermark)
                    self._complete_waiting(high_watermark)
                    self._notify_readers(high_watermark)
                case ProposeIsr():
                    self._propose_isr(self, effect)
                case _:
                    assert_never(effect)

    def _complete_waiting(self, high_watermark: Offset) -> None:
        waiting = self._waiting
        if not waiting or waiting[0][_OFFSET] >= high_watermark:
            return
        refusal = self._commit_refusal()
        while waiting and waiting[0][_OFFSET] < high_watermark:
            _, callback = waiting.popleft()
            apart(_log, _AFTER_COMMIT, callback, refusal)

    def _fail_waiting(self, error: KafkaError) -> None:
        failed, self._waiting = self._waiting, deque()
        for _, callback in failed:
            apart(_log, _AFTER_COMMIT, callback, error)

    def _notify_readers(self, high_watermark: Offset) -> None:
        """Notifies readers how many more bytes they can see. A partly committed batch counts as a
        whole.
        """
        uncommitted, committed_bytes = self._uncommitted, 0
        while uncommitted and uncommitted[0][_OFFSET] < high_watermark:
            _, size_bytes = uncommitted.popleft()
            committed_bytes += size_bytes
        self._notify_more(Isolation.HIGH_WATERMARK, committed_bytes)
        stable_end, before = self.log.last_stable_offset, self._stable_end
        if stable_end != before:
            # The end of an open transaction also reveals what was committed after its start.
            is_plain = before == self._visible_end and stable_end == high_watermark
            self._notify_more(Isolation.COMMITTED, committed_bytes if is_plain else 0)
        self._stable_end, self._visible_end = stable_end, high_watermark

    def _notify_more(self, isolation: Isolation, size_bytes: int) -> None:
        """`size_bytes` is 0 if it is unknown."""
        for watcher in list(self._watchers[isolation]):
            if size_bytes:
                apart(_log, _READER, watcher.more, self, size_bytes)
            else:
                apart(_log, _READER, watcher.changed, self)

    def _wake_watchers(self) -> None:
        """A change other than more bytes: every watcher checks."""
        for isolation in self._watchers:
            self._notify_more(isolation, 0)

    def _commit_refusal(self) -> KafkaError | None:
        refused = self.leader.commit_refusal() if self.leader is not None else None
        return None if refused is None else KafkaError(refused.code, refused.detail)

    def _leadership_moved(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{self.topic_partition} is led by {self.leader_id} in epoch {self.leader_epoch}",
        )

    def _other_epoch(self, current_leader_epoch: LeaderEpoch) -> KafkaError:
        code = ErrorCode.UNKNOWN_LEADER_EPOCH
        if current_leader_epoch < self.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        return KafkaError(
            code,
            f"{self.topic_partition} is in epoch {self.leader_epoch}, not {current_leader_epoch}",
        )
