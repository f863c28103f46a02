"""Moves logs from one directory to another while they are in use (KIP-113): a copy is made beside
the log, piece by piece between other work, and takes its place once it holds everything.

A crash on the way leaves the copy as it is; the next start goes on with it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory import DirectoryKind, directory_name
from moldau.storage.log_read import Isolation
from moldau.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.broker.cold_reads import ColdReads
    from moldau.broker.log_store import LogStore
    from moldau.broker.partition import Partition
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks
    from moldau.storage.log import Log
    from moldau.storage.logs import Logs

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
# With less than this to go the rest is copied in one go, while appends wait.
_LAST_PIECE_OFFSETS = 1_000

OnMoved = Callable[["Partition"], None]


class LogMoves:
    """One copy is worked on at a time; the others wait in line."""

    def __init__(
        self,
        store: "LogStore",
        tasks: "Tasks",
        clock: "Clock",
        cold_reads: "ColdReads",
        on_moved: OnMoved,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._cold_reads = cold_reads
        self._on_moved = on_moved
        self._waiting: dict[TopicPartition, Partition] = {}
        self._is_working = False

    def move(self, partition: "Partition", target: "Logs") -> None:
        """Begin, or change the target, or call it off if the log is there already."""
        name = partition.topic_partition
        if partition.log.directory is target.directory:
            self._drop_copies(name)
            return
        if name not in target.futures:
            self._drop_copies(name)
            target.create_future(
                name, partition.topic_id, Uuid(uuid4().bytes), self._clock.wall_ms()
            )
            target.settle()
        self._take_up(partition)

    def resume(self, partition: "Partition") -> None:
        """After a start: go on with the copy that is there, if there is one."""
        if self._target(partition) is not None:
            self._take_up(partition)

    def _take_up(self, partition: "Partition") -> None:
        self._waiting[partition.topic_partition] = partition
        if not self._is_working:
            self._is_working = True
            _ = self._tasks.start(self._work(), "move logs between directories")

    async def _work(self) -> None:
        try:
            while self._waiting:
                name, partition = next(iter(self._waiting.items()))
                await self._copy(partition)
                if self._waiting.get(name) is partition:
                    del self._waiting[name]
        finally:
            self._is_working = False

    async def _copy(self, partition: "Partition") -> None:
        flushed = -_LAST_PIECE_OFFSETS
        try:
            while (target := self._target(partition)) is not None:
                await self._warm_up(
                    partition.log, target.futures[partition.topic_partition].log_end_offset
                )
                if self._target(partition) is not target:
                    continue
                future = target.futures[partition.topic_partition]
                is_nearly_there = self._copy_piece(partition, future)
                if is_nearly_there and future.log_end_offset - flushed < _LAST_PIECE_OFFSETS:
                    self._switch(partition, target)
                    return
                if is_nearly_there:
                    flushed = await _flush_in_thread(future)
                else:
                    await asyncio.sleep(0)
        except KafkaError as error:
            _log.error("%s stays where it is: %s", partition.topic_partition, error.detail)

    async def _warm_up(self, source: "Log", offset: int) -> None:
        """Brings the next piece into the page cache, so that copying it waits for no disk."""
        if source.log_start_offset <= offset < source.log_end_offset:
            await self._cold_reads.read(source, offset, _PIECE_BYTES, isolation=Isolation.LOG_END)

    def _copy_piece(self, partition: "Partition", future: "Log") -> bool:
        """True if the rest is small enough to finish."""
        source = partition.log
        now_ms = self._clock.wall_ms()
        if future.log_end_offset > source.log_end_offset:
            future.truncate_to(source.log_end_offset, now_ms)
        if future.log_end_offset < source.log_start_offset:
            future.truncate_fully_and_start_at(source.log_start_offset, now_ms)
        if future.log_end_offset < source.log_end_offset:
            piece = source.read(future.log_end_offset, _PIECE_BYTES, isolation=Isolation.LOG_END)
            if piece.records:
                future.append_as_follower(piece.records, partition.leader_epoch, now_ms)
            else:
                # Compaction has left nothing up to the end.
                future.skip_to(source.log_end_offset, now_ms)
        return source.log_end_offset - future.log_end_offset < _LAST_PIECE_OFFSETS

    def _switch(self, partition: "Partition", target: "Logs") -> None:
        """Without a pause: nothing is appended meanwhile. A crash half way leaves two whole logs,
        of which the next start keeps one.
        """
        name = partition.topic_partition
        source, future = partition.log, target.futures[name]
        while future.log_end_offset < source.log_end_offset:
            self._copy_piece(partition, future)
        future.flush()
        future.update_high_watermark(source.high_watermark)
        if source.log_start_offset > future.log_start_offset:
            future.advance_log_start(source.log_start_offset)
        log = target.promote_future(name)
        target.checkpoint()
        self._store.logs_of(source).delete(name, Uuid(uuid4().bytes), self._clock.wall_ms())
        partition.use_log(log)
        _log.info("%s moved to %s", name, target.directory.path)
        self._on_moved(partition)

    def _target(self, partition: "Partition") -> "Logs | None":
        """Where its copy is; None if there is none any more, or nothing to copy from."""
        if not partition.has_log:
            return None
        name = partition.topic_partition
        return next((logs for logs in self._store.online() if name in logs.futures), None)

    def _drop_copies(self, name: TopicPartition) -> None:
        self._waiting.pop(name, None)
        for logs in self._store.online():
            if name in logs.futures:
                logs.delete(name, Uuid(uuid4().bytes), self._clock.wall_ms())


async def _flush_in_thread(log: "Log") -> int:
    """The offset up to which it is on the disk then."""
    ticket = log.begin_flush(everything=True)
    try:
        await asyncio.get_running_loop().run_in_executor(None, ticket.run)
    finally:
        log.finish_flush(ticket)
    return ticket.end_offset


def check_name(name: TopicPartition) -> None:
    """Raises INVALID_TOPIC_EXCEPTION if no copy could have it."""
    directory_name(name, DirectoryKind.FUTURE, Uuid(bytes(16)))


def check_movable(store: "LogStore", partition: "Partition") -> None:
    """With a directory offline a second copy of the same log might lie there."""
    if not partition.has_log:
        raise partition.failure or KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if len(store.online()) < len(store.logs) or store.unavailable:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "nothing is moved while a log directory is offline"
        )
