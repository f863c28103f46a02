"""Reads in threads what the page cache does not hold, so that a slow disk delays only its own
readers. Threads and the bytes in flight are bounded; further reads wait for room.
"""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.read import Isolation, ReadResult
from moldau.types import Offset

if TYPE_CHECKING:
    from moldau.storage.log.log import Log

THREADS_MAX = 8
BYTES_IN_FLIGHT_MAX = 64 << 20
ATTEMPTS_MAX = 20
"""How often one read may find something else missing from the page cache: an index, headers, the
batches. More means that the log changes faster than it can be read.
"""
READS_PER_SEGMENT = 4
"""For a search for the largest timestamp: two indexes, the data after their last entries, and new
indexes if they are broken.
"""


def changes_too_fast(what: object) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what} changes faster than it can be read")


class ColdReads:
    def __init__(self) -> None:
        self.buffers = ReadBuffers()
        self.count = 0
        """The number of reads that had to go to the disk."""
        self.bytes = 0
        self.bytes_in_flight = 0
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="moldau-read")
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def reads(self, *, sends_files: bool = False) -> CachedReads:
        """Makes the reads of one request."""
        return CachedReads(self.buffers, sends_files=sends_files)

    async def load(self, log: "Log", cold: NotCachedError) -> None:
        """Loads the missing bytes in a thread. Afterwards the read can be retried; it finds the
        bytes, or the reason why the log is gone. Raises KafkaError if the disk or the system fails
        the read.
        """
        # Its traceback refers to frames that hold it, and their buffers: a reference cycle.
        cold.__traceback__ = None
        await self._wait_for_room(cold.size_bytes)
        self.count += 1
        self.bytes += cold.size_bytes
        work = asyncio.get_running_loop().run_in_executor(self._threads, cold.load)
        work.add_done_callback(lambda _: self._ended(cold.size_bytes))
        # A thread cannot be stopped: its bytes count until it ends, even if the client is gone.
        adopt = await asyncio.shield(work)
        if not log.is_abandoned:
            log.adopt(adopt)

    async def read(
        self, log: "Log", offset: Offset, max_bytes: int, *, isolation: Isolation
    ) -> ReadResult:
        """Reads like `Log.read`, for callers that can wait while other tasks run."""
        reads = self.reads()
        reads.next_log(max_bytes)
        for _ in range(ATTEMPTS_MAX):
            try:
                return log.take(
                    log.find(Offset(offset), max_bytes, reads, isolation=isolation), reads
                )
            except NotCachedError as cold:
                await self.load(log, cold)
        raise changes_too_fast(log.topic_partition)

    async def _wait_for_room(self, size: int) -> None:
        if self._waiting or not self._fits(size):
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((room, size))
            try:
                await room
            except asyncio.CancelledError:
                if room.done() and not room.cancelled():
                    # The room was granted just now: pass it on to the next read.
                    self._ended(size)
                raise
        else:
            self.bytes_in_flight += size

    def _fits(self, size: int) -> bool:
        return not self.bytes_in_flight or self.bytes_in_flight + size <= BYTES_IN_FLIGHT_MAX

    def _ended(self, size: int) -> None:
        self.bytes_in_flight -= size
        while self._waiting:
            room, wanted = self._waiting[0]
            if not room.done():
                if not self._fits(wanted):
                    return
                self.bytes_in_flight += wanted
                room.set_result(None)
            self._waiting.popleft()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
