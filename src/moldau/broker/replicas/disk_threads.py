"""Runs the event loop's syncs: one thread for each log directory. Changes of a directory are
sequential, and a change that has begun is completed, even if its caller is gone.
"""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps, run_here

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class DiskThreads:
    """Call `stop` before the directories are closed."""

    def __init__(self, directories: Iterable[LogDirectory]) -> None:
        self._tasks = Tasks(are_measured=True)
        self._turns: dict[LogDirectory, asyncio.Lock] = {}
        self._threads: dict[LogDirectory, ThreadPoolExecutor] = {}
        for directory in directories:
            self._turns[directory] = asyncio.Lock()
            name = f"moldau-disk-{directory.path.name}"
            self._threads[directory] = ThreadPoolExecutor(1, thread_name_prefix=name)
            directory.do = partial(self.begin, directory)

    async def run(self, directory: LogDirectory, steps: Steps[ResultT]) -> ResultT:
        """Raises what the steps raise."""
        work = self._tasks.start(
            self._drive(directory, steps), "change a directory", expects=(MoldauError,)
        )
        result: ResultT = await asyncio.shield(work)
        return result

    def begin(self, directory: LogDirectory, steps: Steps[None]) -> None:
        """For changes without a waiting caller."""
        _ = self._tasks.start(self._reported(directory, steps), "change a directory")

    async def _reported(self, directory: LogDirectory, steps: Steps[None]) -> None:
        try:
            await self._drive(directory, steps)
        except KafkaError as error:
            _log.warning("%s", error.detail)

    async def _drive(self, directory: LogDirectory, steps: Steps[ResultT]) -> ResultT:
        loop, thread = asyncio.get_running_loop(), self._threads[directory]
        async with self._turns[directory]:
            try:
                slow = next(steps)
                while True:
                    try:
                        await loop.run_in_executor(thread, slow)
                    except Exception as error:  # noqa: BLE001 - the generator knows what it means
                        slow = steps.throw(error)
                    else:
                        slow = next(steps)
            except StopIteration as end:
                result: ResultT = end.value
                return result

    async def stop(self) -> None:
        """Waits for changes that have begun. From then on everything happens in the caller's
        thread.
        """
        for directory in self._turns:
            directory.do = run_here
        await self._tasks.wait()
        for thread in self._threads.values():
            thread.shutdown()
