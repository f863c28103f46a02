"""Makes appends durable, many at a time: one round of fdatasync covers everything that was appended
before it began, in a thread, and the next round begins when it is back.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from moldau.storage.flushing import FlushTicket, GroupFlusher

if TYPE_CHECKING:
    from moldau.storage.log_state import LogState

_log = logging.getLogger(__name__)

OnFlushed = Callable[["LogState"], None]


class FlushRounds:
    """Give `flusher` to every log. Rounds run in the event loop that appends."""

    def __init__(self, on_flushed: OnFlushed) -> None:
        self.flusher = GroupFlusher(self._work_arrived)
        self._on_flushed = on_flushed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moldau-flush")
        self._is_busy = False
        self._is_stopped = False
        self._idle: asyncio.Future[None] | None = None

    async def stop(self) -> None:
        """Waits for the running round. What is dirty then is flushed by closing the logs."""
        self._is_stopped = True
        if self._is_busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._thread.shutdown()

    def _work_arrived(self) -> None:
        if not self._is_busy and not self._is_stopped:
            self._is_busy = True
            # Not at once: whatever else is appended in this turn of the loop goes along.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self._is_stopped:
            self._rest()
            return
        tickets = self.flusher.begin()
        loop = asyncio.get_running_loop()
        round_done = loop.run_in_executor(self._thread, _run, tickets)
        round_done.add_done_callback(lambda done: self._finish(tickets, done.exception()))

    def _finish(self, tickets: list[FlushTicket], unforeseen: BaseException | None) -> None:
        if unforeseen is not None:
            _log.error("a flush failed unexpectedly", exc_info=unforeseen)
            for ticket in tickets:
                ticket.error = ticket.error or OSError(errno.EIO, f"flush failed: {unforeseen}")
        self.flusher.finish(tickets)
        for ticket in tickets:
            self._on_flushed(ticket.log)
        if self.flusher.has_work and not self._is_stopped:
            self._begin()
        else:
            self._rest()

    def _rest(self) -> None:
        self._is_busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _run(tickets: list[FlushTicket]) -> None:
    for ticket in tickets:
        ticket.run()
