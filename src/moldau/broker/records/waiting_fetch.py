"""A fetch that waits: for threads to read from the disk, for other tasks to run, and for enough
bytes. It only tracks how many bytes are missing; `Fetch` reads them.
"""

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import BrokerServices
from moldau.net.slices import others_first
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import FetchResponse
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.log import Log

if TYPE_CHECKING:
    from moldau.broker.handlers.fetch import Fetch

NO_ROOM_WAIT_MS = 1_000
"""How long a fetch waits until other clients have read their responses. The shorter, the less it
delays clients that wait for minutes if there is nothing to read.
"""

Cold = tuple[Log, NotCachedError] | None
"""The data that a thread must load before an attempt can continue. None: other tasks must run
first.
"""
Attempt = Generator[Cold, None, FetchResponse | None]
"""Returns the response, or None if there is not enough for it yet."""


async def finish(attempt: Attempt, cold: Cold, broker: BrokerServices) -> FetchResponse | None:
    """Loaded bytes count like an unread response: less memory is left for others meanwhile."""
    held_bytes = 0
    try:
        while True:
            failure: KafkaError | None = None
            if cold is None:
                await others_first()
            else:
                log, missing = cold
                held_bytes += missing.size_bytes
                broker.budget.hold_answers(missing.size_bytes)
                try:
                    await broker.replicas.cold_reads.load(log, missing)
                except KafkaError as error:
                    failure = error
            try:
                cold = next(attempt) if failure is None else attempt.throw(failure)
            except StopIteration as ended:
                answer: FetchResponse | None = ended.value
                return answer
    finally:
        broker.budget.hold_answers(-held_bytes)


class WaitingFetch:
    """Tries again once as many more bytes can be read as are missing, at most once per turn of the
    event loop.
    """

    def __init__(self, fetch: "Fetch", wait_ms: float) -> None:
        self._fetch = fetch
        self.answered: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self._watched = list(fetch.indexes)
        self._missing_bytes = fetch.missing_bytes
        self._changed_partitions: dict[Partition, None] = {}
        self._is_woken = False
        self._is_reading = False
        self._is_last = False
        broker = fetch.ctx.broker
        self._tasks = broker.replicas.tasks
        self._wake_ups = broker.wake_ups
        if not fetch.has_room:
            wait_ms = min(wait_ms, NO_ROOM_WAIT_MS)
        self._bucket = broker.deadlines.add(wait_ms, self._time_is_up)
        for partition in self._watched:
            partition.watch(self, fetch.isolation)
        for partition in fetch.stale_partitions():
            self.changed(partition)
        # Also when the client is gone, which cancels the future.
        self.answered.add_done_callback(self._forget)

    def more(self, partition: Partition, size_bytes: int) -> None:
        """`size_bytes` more can be read."""
        if partition not in self._fetch.full:
            self._changed_partitions[partition] = None
            self._missing_bytes -= size_bytes
            if self._missing_bytes <= 0:
                self._wake()

    def changed(self, partition: Partition) -> None:
        """It is unknown how many more bytes can be read, or the partition can no longer be read."""
        self._changed_partitions[partition] = None
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._wake_ups.add(self._try_again)

    def _time_is_up(self) -> None:
        self._is_last = True
        self._try_again()

    def _try_again(self) -> None:
        self._is_woken = False
        if self.answered.done() or self._is_reading:
            return
        changed, self._changed_partitions = self._changed_partitions, {}
        attempt = self._fetch.attempt(changed, is_last=self._is_last)
        try:
            cold = next(attempt)
        except StopIteration as ended:
            self._attempted(ended.value)
            return
        except Exception as error:  # noqa: BLE001 - the waiting caller maps it
            self.answered.set_exception(error)
            return
        self._is_reading = True
        _ = self._tasks.start(self._read_cold(attempt, cold), "read for a waiting fetch")

    async def _read_cold(self, attempt: Attempt, cold: Cold) -> None:
        was_last = self._is_last
        try:
            answer = await finish(attempt, cold, self._fetch.ctx.broker)
        except Exception as error:  # noqa: BLE001 - as above
            if not self.answered.done():
                self.answered.set_exception(error)
            return
        self._is_reading = False
        self._attempted(answer)
        if self._changed_partitions or self._is_last != was_last:
            self._try_again()

    def _attempted(self, answer: FetchResponse | None) -> None:
        if answer is None:
            self._missing_bytes = self._fetch.missing_bytes
        elif not self.answered.done():
            self.answered.set_result(answer)

    def _forget(self, _answered: "asyncio.Future[FetchResponse]") -> None:
        self._bucket.pop(self._time_is_up, None)
        for partition in self._watched:
            partition.unwatch(self, self._fetch.isolation)
