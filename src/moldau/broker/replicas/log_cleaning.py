"""Compacts logs in the background: log.cleaner.threads passes at a time, the slow part of each in a
thread, together at the pace that log.cleaner.io.max.bytes.per.second allows.
"""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from moldau.config.cleaner import cleaner_config
from moldau.protocol.errors import KafkaError
from moldau.storage.compaction.cleaner import Compaction, LogCleaner
from moldau.storage.compaction.run import CompactionAbortedError
from moldau.types import FIRST_OFFSET, TopicPartition

if TYPE_CHECKING:
    from moldau.broker.replicas.disk_threads import DiskThreads
    from moldau.broker.replicas.log_store import LogStore
    from moldau.broker.server.context import ConfigHolder
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks
    from moldau.storage.directory.logs import Logs
    from moldau.storage.log.log import Log

_log = logging.getLogger(__name__)

# Up to a second's worth may run ahead.
_BURST_S = 1.0
# The rate may change during a wait.
_RECHECK_S = 0.1


class Pace:
    """Slows threads down to a number of bytes per second. Called in their threads."""

    def __init__(self, clock: "Clock", settings: "ConfigHolder") -> None:
        self._clock = clock
        self._settings = settings
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ahead_bytes = 0.0
        self._updated_ms = clock.mono_ms()

    def __call__(self, count: int) -> None:
        with self._lock:
            self._ahead_bytes += count
        while self._is_too_fast() and not self._stopped.wait(_RECHECK_S):
            pass

    def _is_too_fast(self) -> bool:
        rate = self._settings.current.log_cleaner_io_max_bytes_per_second
        with self._lock:
            now_ms = self._clock.mono_ms()
            allowed = rate * ((now_ms - self._updated_ms) / 1000)
            self._updated_ms = now_ms
            self._ahead_bytes = max(self._ahead_bytes - allowed, 0.0)
            return self._ahead_bytes > rate * _BURST_S

    def stop(self) -> None:
        self._stopped.set()


class LogCleaning:
    def __init__(
        self,
        store: "LogStore",
        disk: "DiskThreads",
        tasks: "Tasks",
        clock: "Clock",
        settings: "ConfigHolder",
    ) -> None:
        self._store = store
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._settings = settings
        self._pace = Pace(clock, settings)
        self._cleaners: dict[Logs, LogCleaner] = {}
        self._workers: dict[int, ThreadPoolExecutor] = {}
        self._running: dict[Compaction, Logs] = {}
        self._idle: dict[asyncio.Event, None] = {}

    @property
    def running_count(self) -> int:
        return len(self._running)

    def start(self) -> None:
        config = self._settings.current
        if not config.log_cleaner_enable:
            return
        for logs in self._store.online():
            self._cleaners[logs] = LogCleaner(
                logs.directory, cleaner_config(config), self._store.chance.randbytes(16), self._pace
            )
        self.settings_changed()

    def settings_changed(self) -> None:
        """New workers begin at once; a surplus worker ends after its current pass."""
        if not self._cleaners:
            return
        for number in range(self._settings.current.log_cleaner_threads):
            if number not in self._workers:
                self._workers[number] = ThreadPoolExecutor(1, f"moldau-compact-{number}")
                _ = self._tasks.start(self._work(number), f"compact {number}")
        for wake_up in self._idle:
            wake_up.set()

    def stop(self) -> None:
        """The passes end soon; their results so far stay."""
        self._pace.stop()
        for compaction in self._running:
            compaction.stop()
        for thread in self._workers.values():
            thread.shutdown(wait=True)

    # Events of logs

    def forget(self, name: TopicPartition) -> None:
        """The log is deleted."""
        for logs, cleaner in self._cleaners.items():
            if logs.directory.is_online:
                cleaner.forget(name)

    def moved(self, log: "Log") -> None:
        """The log is in another directory now: what was clean there is clean here."""
        name = log.topic_partition
        offsets = [c.clean_offset(name) or FIRST_OFFSET for c in self._cleaners.values()]
        self.forget(name)
        cleaner = self._cleaners.get(self._store.logs_of(log))
        if cleaner is not None and any(offsets):
            cleaner.adopt(name, max(offsets))

    # The passes

    async def _work(self, number: int) -> None:
        thread = self._workers[number]
        try:
            while number < self._settings.current.log_cleaner_threads:
                if not await self._clean_one(thread):
                    await self._wait_for_work()
        finally:
            # A stop waits for all of them, and this one may not have finished.
            if number >= self._settings.current.log_cleaner_threads:
                del self._workers[number]
                thread.shutdown(wait=False)

    async def _wait_for_work(self) -> None:
        """Waits until there may be work, or other settings."""
        wake_up = asyncio.Event()
        timer = self._clock.call_later(self._settings.current.log_cleaner_backoff_ms, wake_up.set)
        self._idle[wake_up] = None
        try:
            await wake_up.wait()
        finally:
            timer.cancel()
            self._idle.pop(wake_up, None)

    async def _clean_one(self, thread: ThreadPoolExecutor) -> bool:
        """True if there was work, and it succeeded. Disks share the workers."""
        busy = list(self._running.values())
        for logs in sorted(self._cleaners, key=busy.count):
            if not logs.directory.is_online:
                continue
            cleaner = self._cleaners[logs]
            cleaner.config = cleaner_config(self._settings.current)
            try:
                sound = [log for log in logs.by_partition.values() if log.damage is None]
                compaction = cleaner.begin(sound, self._clock.wall_ms())
                if compaction is not None:
                    self._running[compaction] = logs
                    return await self._run(cleaner, compaction, thread)
            except KafkaError as error:
                # The directory failed, which is logged elsewhere too, or it is full.
                _log.warning("compaction in %s: %s", logs.directory.path, error.detail)
        return False

    async def _run(
        self, cleaner: LogCleaner, compaction: Compaction, thread: ThreadPoolExecutor
    ) -> bool:
        try:
            await self._steps(cleaner, compaction, thread)
        except CompactionAbortedError as aborted:
            _log.info("compaction ended early: %s", aborted)
            cleaner.finish(compaction, aborted)
            # Perhaps for lack of room: do not retry at once.
            return False
        except Exception as error:  # noqa: BLE001 - the other logs must be compacted
            cleaner.finish(compaction, error)
            return False
        except asyncio.CancelledError:
            compaction.stop()
            raise
        else:
            cleaner.finish(compaction)
        finally:
            self._running.pop(compaction, None)
        return True

    async def _steps(
        self, cleaner: LogCleaner, compaction: Compaction, thread: ThreadPoolExecutor
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            group = await loop.run_in_executor(thread, compaction.step)
            if group is None:
                return
            swap = cleaner.applying(compaction, group, self._clock.wall_ms())
            await self._disk.run(compaction.log.directory, swap)
