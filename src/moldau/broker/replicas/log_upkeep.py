"""Periodic maintenance of logs: deletes old segments, unlinks removed files, writes offsets to
checkpoints, expires idle producers. In the event loop, a log at a time, with syncs in threads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.records.cold_reads import ATTEMPTS_MAX, READS_PER_SEGMENT
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.retention import delete_old_segments

if TYPE_CHECKING:
    from moldau.broker.records.cold_reads import ColdReads
    from moldau.broker.replicas.disk_reports import DiskReports
    from moldau.broker.replicas.disk_threads import DiskThreads
    from moldau.broker.replicas.log_store import LogStore
    from moldau.broker.server.context import ConfigHolder
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks
    from moldau.storage.log.log import Log

_log = logging.getLogger(__name__)

_REMOVAL_INTERVAL_MS = 1_000
_REMOVED_TOGETHER = 4
_FLUSH_CHECK_INTERVAL_MS = 1_000

Interval = Callable[["BrokerConfig"], int]
Job = Callable[[], Awaitable[None]]


class LogUpkeep:
    def __init__(
        self,
        store: "LogStore",
        disk: "DiskThreads",
        tasks: "Tasks",
        clock: "Clock",
        settings: "ConfigHolder",
        reports: "DiskReports",
    ) -> None:
        self._store = store
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._settings = settings
        self._reports = reports

    def start(self, cold_reads: "ColdReads") -> None:
        checkpoints: list[tuple[str, Interval]] = [
            (HIGH_WATERMARK_FILE, lambda c: c.replica_high_watermark_checkpoint_interval_ms),
            (RECOVERY_POINT_FILE, lambda c: c.log_flush_offset_checkpoint_interval_ms),
            (LOG_START_FILE, lambda c: c.log_flush_start_offset_checkpoint_interval_ms),
        ]
        for file_name, interval in checkpoints:
            self._repeat(file_name, partial(self._checkpoint, file_name), interval)
        self._repeat(
            "delete old segments",
            partial(self._delete_old, cold_reads),
            lambda c: c.log_retention_check_interval_ms,
        )
        self._repeat(
            "forget producers",
            self._expire_producers,
            lambda c: c.producer_id_expiration_check_interval_ms,
        )
        self._repeat("remove deleted files", self._remove_deleted, lambda _: _REMOVAL_INTERVAL_MS)
        _ = self._tasks.start(self._flush_by_time(), "flush logs after flush.ms")

    def _repeat(self, name: str, job: Job, interval: Interval) -> None:
        async def run() -> None:
            while True:
                await self._clock.sleep(max(interval(self._settings.current), 1))
                try:
                    await job()
                except Exception as error:  # noqa: BLE001 - the next round must run
                    self._reports.failed(name, "all logs", error)

        _ = self._tasks.start(run(), name)

    async def _delete_old(self, cold_reads: "ColdReads") -> None:
        for log in list(self._store):
            try:
                deleted = await self._delete_segments(log, cold_reads)
            except Exception as error:  # noqa: BLE001 - the other logs come next
                self._reports.failed("retention", log.topic_partition, error)
            else:
                if deleted:
                    _log.info(
                        "%s: %d old segments are deleted, it now starts at %d",
                        log.topic_partition, deleted, log.log_start_offset,
                    )  # fmt: skip
            await asyncio.sleep(0)

    async def _delete_segments(self, log: "Log", cold_reads: "ColdReads") -> int:
        """Has threads load what the page cache lacks: timestamps may be in files that were not
        read since the start.
        """
        reads = cold_reads.reads()
        deleted = 0
        for _ in range(ATTEMPTS_MAX + READS_PER_SEGMENT * len(log.segments)):
            try:
                deleted += delete_old_segments(log, self._clock.wall_ms(), reads)
            except NotCachedError as cold:
                await cold_reads.load(log, cold)
            else:
                break
        return deleted

    async def _remove_deleted(self) -> None:
        for logs in self._store.online():
            try:
                removed = _REMOVED_TOGETHER
                while removed:
                    removed = await self._disk.run(
                        logs.directory,
                        logs.removing_deleted(self._clock.wall_ms(), _REMOVED_TOGETHER),
                    )
            except KafkaError as error:
                self._reports.failed("removal of files", logs.directory.path, error)

    async def _checkpoint(self, file_name: str) -> None:
        for logs in self._store.online():
            try:
                await self._disk.run(logs.directory, logs.checkpoints.writing(file_name))
            except KafkaError as error:
                self._reports.failed(f"checkpoint {file_name}", logs.directory.path, error)

    async def _expire_producers(self) -> None:
        for log in list(self._store):
            log.producers.expire(self._clock.wall_ms())
            await asyncio.sleep(0)

    def _flush_check_interval_ms(self) -> int:
        """Kafka's default is never, with which flush.ms would do nothing."""
        config = self._settings.current
        if "log.flush.scheduler.interval.ms" in config.given:
            return max(config.log_flush_scheduler_interval_ms, 1)
        return _FLUSH_CHECK_INTERVAL_MS

    async def _flush_by_time(self) -> None:
        """The policy `os` leaves flushing to the kernel, unless a topic has flush.ms."""
        loop = asyncio.get_running_loop()
        while True:
            await self._clock.sleep(self._flush_check_interval_ms())
            for logs in self._store.online():
                for log in logs.due_for_flush(self._clock.wall_ms()):
                    try:
                        ticket = log.begin_flush(everything=True)
                        try:
                            await loop.run_in_executor(None, ticket.run)
                        finally:
                            log.finish_flush(ticket)
                    except KafkaError as error:
                        self._reports.failed("flush", log.topic_partition, error)
