"""Opens logs in a thread: after a crash that takes as long as the disk needs to read them. The
event loop is free meanwhile, and may write the metadata log in one of the same directories.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.segment.open_segments import release_all

if TYPE_CHECKING:
    from moldau.broker.replicas.flush_rounds import FlushRounds
    from moldau.broker.replicas.log_store import AcceptsDamage, LogStore
    from moldau.types import TopicPartition


_log = logging.getLogger(__name__)


async def load_logs(
    store: "LogStore",
    rounds: "FlushRounds",
    accepts_damage: "AcceptsDamage",
    is_known: "Callable[[TopicPartition], bool]",
) -> None:
    """Opens and flushes all logs of the store, and sets unknown ones aside. Nothing else may use
    the store until this returns.
    """

    def load() -> None:
        store.load(accepts_damage)
        # Flush what a crash left unflushed before any partition is led or read.
        rounds.flusher.run_round()
        store.set_strays_aside(is_known)
        store.is_loaded = True

    store.has_begun_to_load = True
    await opening_logs(load, [logs.directory for logs in store.logs], rounds)


async def opening_logs(
    work: Callable[[], None], directories: Sequence[LogDirectory], rounds: "FlushRounds"
) -> None:
    """Runs `work`, which opens logs of these directories, in a thread. A cancellation waits for it:
    the thread cannot be interrupted, and it uses the directories.
    """

    def run() -> None:
        try:
            work()
        finally:
            # Each thread counts the files that it has open. The event loop opens them again.
            release_all()

    rounds.hold()
    guards = [_Guard(directory) for directory in directories]
    running = asyncio.get_running_loop().run_in_executor(None, run)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        # The thread ends with the log that it opens at the moment.
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if (error := running.exception()) is not None:
            _log.warning("the logs were not loaded: %s", error)
        raise
    finally:
        for guard in guards:
            guard.end()
        rounds.resume()


class _Guard:
    """Passes reports of a directory from the loading thread to the event loop. A change that the
    thread needs is made at once.
    """

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._owner = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._notify, self._do = directory.notify, directory.do
        directory.notify, directory.do = self._pass_on, self._change

    def end(self) -> None:
        self._directory.notify, self._directory.do = self._notify, self._do

    def _pass_on(self, call: Callable[[], None]) -> None:
        if threading.get_ident() == self._owner:
            self._notify(call)
        else:
            self._loop.call_soon_threadsafe(partial(self._notify, call))

    def _change(self, steps: Steps[None]) -> None:
        if threading.get_ident() == self._owner:
            self._do(steps)
        else:
            run_here(steps)
