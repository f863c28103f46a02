"""Makes appends durable, many at a time: one round of fdatasync covers everything that was appended
before it began, unless that is in very many logs: those take turns. Rounds do not overlap. An
append outside of a round starts one at once; those during a round wait for the next, which begins
moldau.flush.interval.ms after the last began: under load fewer rounds cover more appends.
"""

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.storage.log.flushing import FlushTicket, GroupFlusher, OnFailed
from moldau.unexpected import apart

if TYPE_CHECKING:
    from pathlib import Path

    from moldau.broker.server.context import ConfigHolder, Peer
    from moldau.net.clock import Clock, Timer
    from moldau.storage.log.state import LogState

_log = logging.getLogger(__name__)

# File systems commit the syncs of several files together, but only if they run at the same time: 20
# files take 33 ms one after the other and 3 ms in 8 threads.
THREADS_MAX = 8
_REFUSED_PAUSE_MS = 100
_GIL_PAUSE_S = 0.00002

OnFlushed = Callable[["LogState"], None]


class FlushRounds:
    """Pass `flusher` to every log. Rounds run in the event loop that appends."""

    def __init__(
        self,
        clock: "Clock",
        settings: "ConfigHolder",
        on_flushed: OnFlushed,
        on_failed: OnFailed,
        backlog: FlushBacklog | None = None,
    ) -> None:
        """`on_failed` is called with an unforeseen error, of a flush or of `on_flushed`."""
        self.flusher = GroupFlusher(self._work_arrived, on_failed=on_failed)
        self.backlog = backlog or FlushBacklog(clock)
        self._clock = clock
        self._settings = settings
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="moldau-flush")
        self._is_busy = False
        self._is_stopped = False
        self._is_held = False
        self._must_pause = False
        self._began_ms = 0.0
        self._tickets: list[FlushTicket] = []
        self._parts_running = 0
        self._idle: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        """Set while the next round waits for its time to begin."""
        self.backlog.on_full = self._begin_early

    def appended(self, peer: "Peer", log: "LogState", count: int, *, is_first: bool) -> None:
        """The client has appended `count` bytes to a log that awaits a flush. `is_first`: the log
        did not await one before this append.
        """
        self.backlog.add(peer, count)
        if self.flusher.is_crowded:
            peer.flush_place = self.flusher.queue_after(peer.flush_place, log, is_first=is_first)

    def do_all(self, work: Callable[["Path"], None], paths: "Sequence[Path]") -> Iterable[None]:
        """Syncs outside of a round; the caller waits for them."""
        return self._threads.map(work, paths)

    def let_threads_run(self) -> None:
        """Call this after every busy turn of the event loop. A loop that only makes short system
        calls gives up the interpreter lock for microseconds at a time, which is too short for a
        waiting thread to take it: a sync of 0.3 ms was noticed 20 ms later.
        """
        if self._parts_running:
            time.sleep(_GIL_PAUSE_S)  # noqa: TID251 - releases the interpreter lock

    async def stop(self) -> None:
        """Waits for the running round. Closing the logs flushes the rest."""
        self._is_stopped = True
        if self._parts_running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._threads.shutdown()

    def hold(self) -> None:
        """No round begins: a thread has the logs, and flushes them itself."""
        self._is_held = True

    def resume(self) -> None:
        """Called in the event loop."""
        self._is_held = False
        if self.flusher.has_work:
            self._work_arrived()

    def _work_arrived(self) -> None:
        if not self._is_busy and not self._is_stopped and not self._is_held:
            self._is_busy = True
            # After this turn of the loop, so that its other appends join the round.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin_early(self) -> None:
        """The clients that have filled the backlog wait already: a later round would gain
        nothing.
        """
        if self._timer is not None and not self._must_pause:
            self._timer.cancel()
            self._timer = None
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._is_stopped:
            return
        self._began_ms = self._clock.mono_ms()
        self._tickets = self.flusher.begin()
        self.backlog.round_began()
        if not self._tickets:
            self._finish()
            return
        self._parts_running = min(len(self._tickets), THREADS_MAX)
        loop = asyncio.get_running_loop()
        for number in range(self._parts_running):
            part = self._tickets[number :: self._parts_running]
            # `_sync` reports its end itself: the future's callback comes a turn of the loop later.
            _ = loop.run_in_executor(self._threads, self._sync, part, loop)

    def _sync(self, part: list[FlushTicket], loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread."""
        unforeseen: Exception | None = None
        try:
            for ticket in part:
                ticket.run()
        except Exception as error:  # noqa: BLE001 - the loop must be notified
            unforeseen = error
        # The loop may have been closed in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._part_done, part, unforeseen)

    def _part_done(self, part: list[FlushTicket], unforeseen: Exception | None) -> None:
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
            try:
                self._on_flushed(ticket.log)
            except Exception as error:  # noqa: BLE001 - the other logs are notified, too
                apart(_log, "a callback after a failed flush", self._on_failed, ticket.log, error)
        if self._idle is not None:
            self._idle.set_result(None)
        elif self.flusher.has_work and not self._is_stopped:
            self._begin_next(tickets)
        else:
            self._is_busy = False
            # The logs that filled it may have been deleted meanwhile.
            self.backlog.round_began()

    def _begin_next(self, before: list[FlushTicket]) -> None:
        interval_ms: float = self._settings.current.moldau_flush_interval_ms
        # For lack of descriptors: other files must be closed first.
        self._must_pause = not before or any(ticket.is_refused for ticket in before)
        if self._must_pause:
            interval_ms = max(interval_ms, _REFUSED_PAUSE_MS)
        elif self.backlog.is_full or self.flusher.has_more:
            interval_ms = 0
        wait_ms = self._began_ms + interval_ms - self._clock.mono_ms()
        if wait_ms > 0:
            self._timer = self._clock.call_later(wait_ms, self._begin)
        else:
            # A timer would wait for another turn of a busy loop.
            self._begin()
