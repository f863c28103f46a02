"""Makes appends durable, many at a time: one round of fdatasync covers everything that was appended
before it began. Rounds do not overlap. An append that finds none running is synced at once; those
that come during a round wait for the next, which begins moldau.flush.interval.ms after the last
began: under load fewer rounds cover more appends.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from moldau.storage.flushing import FlushTicket, GroupFlusher
from moldau.unexpected import apart

if TYPE_CHECKING:
    from pathlib import Path

    from moldau.broker.context import ConfigHolder
    from moldau.net.clock import Clock
    from moldau.storage.log_state import LogState

_log = logging.getLogger(__name__)

# File systems commit the syncs of several files together, but only if they are asked together: 20
# files take 33 ms one after the other and 3 ms in 8 threads.
THREADS_MAX = 8
_REFUSED_PAUSE_MS = 100

OnFlushed = Callable[["LogState"], None]


class FlushRounds:
    """Give `flusher` to every log. Rounds run in the event loop that appends."""

    def __init__(self, clock: "Clock", settings: "ConfigHolder", on_flushed: OnFlushed) -> None:
        self.flusher = GroupFlusher(self._work_arrived)
        self._clock = clock
        self._settings = settings
        self._on_flushed = on_flushed
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="moldau-flush")
        self._is_busy = False
        self._is_stopped = False
        self._began_ms = 0.0
        self._tickets: list[FlushTicket] = []
        self._parts_running = 0
        self._idle: asyncio.Future[None] | None = None

    def do_all(self, work: Callable[["Path"], None], paths: "Sequence[Path]") -> Iterable[None]:
        """Syncs that are no part of a round; the caller waits for them."""
        return self._threads.map(work, paths)

    async def stop(self) -> None:
        """Waits for the running round. What is dirty then is flushed by closing the logs."""
        self._is_stopped = True
        if self._parts_running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._threads.shutdown()

    def _work_arrived(self) -> None:
        if not self._is_busy and not self._is_stopped:
            self._is_busy = True
            # After this turn of the loop: whatever else is appended in it goes along.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self._is_stopped:
            return
        self._began_ms = self._clock.mono_ms()
        self._tickets = self.flusher.begin()
        if not self._tickets:
            self._finish()
            return
        self._parts_running = min(len(self._tickets), THREADS_MAX)
        loop = asyncio.get_running_loop()
        for number in range(self._parts_running):
            part = self._tickets[number :: self._parts_running]
            done = loop.run_in_executor(self._threads, _run, part)
            done.add_done_callback(partial(self._part_done, part))

    def _part_done(self, part: list[FlushTicket], done: "asyncio.Future[None]") -> None:
        unforeseen = done.exception()
        if unforeseen is not None:
            _log.error("a flush failed unexpectedly", exc_info=unforeseen)
            for ticket in part:
                ticket.error = ticket.error or OSError(errno.EIO, f"flush failed: {unforeseen}")
        self._parts_running -= 1
        if not self._parts_running:
            self._finish()

    def _finish(self) -> None:
        tickets = self._tickets
        self.flusher.finish(tickets)
        for ticket in tickets:
            apart(_log, "what follows a flush", self._on_flushed, ticket.log)
        if self._idle is not None:
            self._idle.set_result(None)
        elif self.flusher.has_work and not self._is_stopped:
            interval_ms = self._settings.current.moldau_flush_interval_ms
            if not tickets or any(ticket.is_refused for ticket in tickets):
                # For lack of descriptors: somebody has to let go of some first.
                interval_ms = max(interval_ms, _REFUSED_PAUSE_MS)
            wait_ms = self._began_ms + interval_ms - self._clock.mono_ms()
            self._clock.call_later(wait_ms, self._begin)
        else:
            self._is_busy = False


def _run(tickets: list[FlushTicket]) -> None:
    for ticket in tickets:
        ticket.run()
