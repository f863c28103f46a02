"""Moves logs from one directory to another while they are in use (KIP-113): a copy is made beside
the log, piece by piece between other work, and replaces the log once it is complete.

A crash leaves the unfinished copy; the next start resumes it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.net.chance import random_uuid
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import RecordBatch
from moldau.storage.directory.directory import DirectoryKind, directory_name
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.log.read import Isolation
from moldau.types import LeaderEpoch, Offset, TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.broker.records.cold_reads import ColdReads
    from moldau.broker.replicas.disk_threads import DiskThreads
    from moldau.broker.replicas.log_store import LogStore
    from moldau.broker.replicas.partition import Partition
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks
    from moldau.storage.directory.logs import Logs
    from moldau.storage.log.log import Log

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
# With less than this left the rest is copied at once, while appends wait.
_LAST_PIECE_OFFSETS = 1_000
_RETRY_MS = 1_000

OnMoved = Callable[["Partition"], None]


class LogMoves:
    """One copy is made at a time; the others wait in line."""

    def __init__(
        self,
        store: "LogStore",
        disk: "DiskThreads",
        tasks: "Tasks",
        clock: "Clock",
        cold_reads: "ColdReads",
        on_moved: OnMoved,
    ) -> None:
        self._store = store
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._cold_reads = cold_reads
        self._on_moved = on_moved
        self._waiting: dict[TopicPartition, Partition] = {}
        self._is_working = False

    def move(self, partition: "Partition", target: "Logs") -> None:
        """Starts a move, or changes its target, or cancels it if the log is there already."""
        name = partition.topic_partition
        if partition.log.directory is target.directory:
            self._drop_copies(name)
            return
        if name not in target.futures:
            self._drop_copies(name)
            target.create_future(
                name, partition.topic_id, random_uuid(self._store.chance), self._clock.wall_ms()
            )
        self._enqueue(partition)

    def resume(self, partition: "Partition") -> None:
        """After a start: resumes the copy, if there is one."""
        if self._target(partition) is not None:
            self._enqueue(partition)

    def _enqueue(self, partition: "Partition") -> None:
        self._waiting[partition.topic_partition] = partition
        if not self._is_working:
            self._is_working = True
            _ = self._tasks.start(self._work(), "move logs between directories")

    async def _work(self) -> None:
        try:
            while self._waiting:
                partition = self._waiting.pop(next(iter(self._waiting)))
                try:
                    await self._copy(partition)
                except Exception:  # noqa: BLE001 - later moves in the queue must run
                    _log.exception(
                        "%s is not moved to another directory", partition.topic_partition
                    )
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
                # The names of a new copy's files.
                await self._disk.run(target.directory, target.syncing_names())
                is_nearly_complete = await self._copy_piece(partition, future)
                if is_nearly_complete and future.log_end_offset - flushed < _LAST_PIECE_OFFSETS:
                    await self._switch(partition, target)
                    return
                if is_nearly_complete:
                    flushed = await _flush_in_thread(future)
                else:
                    await asyncio.sleep(0)
        except KafkaError as error:
            _log.error(
                "%s is not moved to another directory: %s", partition.topic_partition, error.detail
            )

    async def _warm_up(self, source: "Log", offset: Offset) -> None:
        """Brings the next piece into the page cache, so that copying it does not wait for a
        disk.
        """
        offset = max(offset, source.log_start_offset)
        if offset < source.log_end_offset:
            await self._cold_reads.read(source, offset, _PIECE_BYTES, isolation=Isolation.LOG_END)

    async def _first_offset(self, source: "Log") -> Offset:
        """The first offset of the batch that contains the log's start: batches are copied whole."""
        start = source.log_start_offset
        if start == source.log_end_offset:
            return start
        read = self._cold_reads.read
        records = (await read(source, start, 1, isolation=Isolation.LOG_END)).records
        return min(Offset(RecordBatch(records).base_offset), start) if records else start

    async def _copy_piece(self, partition: "Partition", future: "Log") -> bool:
        """True if the rest is small enough to finish."""
        source = partition.log
        now_ms = self._clock.wall_ms()
        if not source.log_start_offset <= future.log_end_offset <= source.log_end_offset:
            start = await self._first_offset(source)
            if not start <= future.log_end_offset <= source.log_end_offset:
                await self._disk.run(
                    future.directory, future.starting_over(Offset(start), Offset(start), now_ms)
                )
        if _has_nothing_more(source, future):
            # Before the gap that the copy gets here.
            await _flush_in_thread(future)
        _copy_one(partition, future, now_ms)
        return source.log_end_offset - future.log_end_offset < _LAST_PIECE_OFFSETS

    async def _switch(self, partition: "Partition", target: "Logs") -> None:
        """Replaces the log by its copy. The copy gets the log's name first; then it receives the
        appends, and when it is on the disk the old log is deleted. A crash in between leaves two
        complete logs, of which the next start keeps one.
        """
        name, source = partition.topic_partition, partition.log
        log = await self._disk.run(target.directory, target.promoting_future(name))
        try:
            if not await self._switch_to(partition, source, log):
                return
        except Exception:
            # It has the log's name without being the log: the name would block the next move.
            if target.by_partition.get(name) is log:
                with contextlib.suppress(KafkaError):
                    target.delete(name, random_uuid(self._store.chance), self._clock.wall_ms())
            raise
        await self._make_durable(log, target)
        if log.is_abandoned or source.is_abandoned:
            return
        before = self._store.logs_of(source)
        before.delete(name, random_uuid(self._store.chance), self._clock.wall_ms())
        await self._disk.run(before.directory, before.syncing_names())
        _log.info("%s moved to %s", name, target.directory.path)
        self._on_moved(partition)

    async def _switch_to(self, partition: "Partition", source: "Log", log: "Log") -> bool:
        """False if one of them is gone."""
        # Later data was just written, so it is cached when appends wait for it.
        old_end = source.log_end_offset
        await self._warm_up(source, log.log_end_offset)
        while _is_valid(partition, source, log):
            is_nearly_complete = await self._copy_piece(partition, log)
            if not _is_valid(partition, source, log):
                return False
            if is_nearly_complete and log.log_end_offset >= old_end:
                break
            await self._warm_up(source, log.log_end_offset)
            await asyncio.sleep(0)
        else:
            return False
        while log.log_end_offset < source.log_end_offset:
            _copy_one(partition, log, self._clock.wall_ms())
        log.update_high_watermark(source.high_watermark)
        if source.log_start_offset > log.log_start_offset:
            log.advance_log_start(source.log_start_offset)
        partition.use_log(log)
        return True

    async def _make_durable(self, log: "Log", target: "Logs") -> None:
        """It receives records already, so there is no way back: a full disk is retried."""
        switched_at = log.log_end_offset
        while not log.is_abandoned:
            try:
                if log.flushed_offset < switched_at:
                    await _flush_in_thread(log)
                else:
                    await self._disk.run(target.directory, target.checkpoints.writing())
                    return
            except DiskFullError as error:
                _log.warning(
                    "%s is not moved to another directory yet: %s",
                    log.topic_partition,
                    error.detail,
                )
                await self._clock.sleep(_RETRY_MS)

    def _target(self, partition: "Partition") -> "Logs | None":
        """The directory of its copy; None if the copy or the log is gone."""
        if not partition.has_log:
            return None
        name = partition.topic_partition
        return next((logs for logs in self._store.online() if name in logs.futures), None)

    def _drop_copies(self, name: TopicPartition) -> None:
        self._waiting.pop(name, None)
        for logs in self._store.online():
            if name in logs.futures:
                logs.delete(name, random_uuid(self._store.chance), self._clock.wall_ms())


def _is_valid(partition: "Partition", source: "Log", log: "Log") -> bool:
    """True unless one of them was deleted or failed."""
    return partition.has_log and partition.log is source and not log.is_abandoned


def _has_nothing_more(source: "Log", future: "Log") -> bool:
    """Compaction has left nothing from the copy's end up to the log's."""
    if future.log_end_offset >= source.log_end_offset:
        return False
    return not _read(source, future, 1)


def _read(source: "Log", future: "Log", bytes_max: int) -> memoryview:
    offset = max(future.log_end_offset, source.log_start_offset)
    return source.read(offset, bytes_max, isolation=Isolation.LOG_END).records


def _copy_one(partition: "Partition", future: "Log", now_ms: int) -> None:
    source = partition.log
    if future.log_end_offset < source.log_end_offset:
        piece = _read(source, future, _PIECE_BYTES)
        if piece:
            future.append_as_follower(piece, LeaderEpoch(partition.leader_epoch), now_ms)
        else:
            future.skip_to(source.log_end_offset, now_ms)


async def _flush_in_thread(log: "Log") -> int:
    """Returns the offset up to which the log is then on the disk."""
    ticket = log.begin_flush(everything=True)
    try:
        await asyncio.get_running_loop().run_in_executor(None, ticket.run)
    finally:
        log.finish_flush(ticket)
    return ticket.end_offset


def check_name(name: TopicPartition) -> None:
    """Raises INVALID_TOPIC_EXCEPTION if the name is too long for a copy."""
    directory_name(name, DirectoryKind.FUTURE, Uuid(bytes(16)))


def check_movable(store: "LogStore", partition: "Partition") -> None:
    """Raises an error while a directory is offline, as a second copy of the same log might be in
    it.
    """
    if not partition.has_log:
        raise partition.failure or KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if len(store.online()) < len(store.logs) or store.unavailable:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "replicas are not moved while a log directory is offline"
        )
