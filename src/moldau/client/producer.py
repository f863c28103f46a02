"""Writes records to a topic: batches by partition, one batch of a partition under way at a time, so
that order survives what is tried again. With acks=all batches carry sequence numbers: none doubles.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from moldau.client.cluster import Cluster
from moldau.client.errors import check
from moldau.client.metadata import Topic
from moldau.client.partition_writer import (
    ACKS_ALL,
    BatchOutcome,
    PartitionWriter,
    ProducerIdentity,
    ProducerOptions,
)
from moldau.client.partitioner import StickyTurns, partition_of_key
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from moldau.types import TopicPartition

_RECORD_OVERHEAD_BYTES = 32
_HEADER_OVERHEAD_BYTES = 10
_NEVER_MS = 2**31 - 1

Headers = Sequence[tuple[str, bytes | None]]


class Producer:
    """Use as `async with`; leaving it without an error waits for what was offered.

    `on_done` hears of every batch. Without it, the first error is raised by `send` and `flush`.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        options: ProducerOptions | None = None,
        on_done: Callable[[BatchOutcome], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._options = options or ProducerOptions()
        self._tell = on_done
        self._writers: dict[int, PartitionWriter] = {}
        self._turns = StickyTurns(len(topic.partitions), self._options.batch_bytes)
        self._tasks = Tasks()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self._tasks.close()

    def offer(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> bool:
        """False: there is no room now, wait for it. A record larger than all room goes alone."""
        size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += _HEADER_OVERHEAD_BYTES + len(name) + len(content or b"")
        if self._waiting_bytes and self._waiting_bytes + size > self._options.buffer_bytes:
            return False
        if partition is None:
            partition = (
                self._turns.next(size)
                if key is None
                else partition_of_key(key, len(self._topic.partitions))
            )
        writer = self._writers.get(partition) or self._open(partition)
        self._waiting_bytes += size
        now_ms = self._cluster.clock.wall_ms() if timestamp is None else timestamp
        writer.append(now_ms, key, value, headers, size)
        return True

    async def send(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Waits for room, not for the broker."""
        self._raise_error()
        while not self.offer(key, value, headers=headers, partition=partition, timestamp=timestamp):
            await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Until some batch is done."""
        self._changed.clear()
        await self._changed.wait()
        self._raise_error()

    async def flush(self) -> None:
        """Until everything offered so far has an outcome."""
        for writer in self._writers.values():
            writer.hurry(True)
        while self._waiting_bytes and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        for writer in self._writers.values():
            writer.hurry(False)
        self._raise_error()

    def _open(self, number: int) -> PartitionWriter:
        self._topic.partition(number)
        partition = TopicPartition(self._topic.name, number)
        writer = PartitionWriter(
            partition, self._cluster, self._options, self._identify, self._finish
        )
        self._writers[number] = writer
        task = self._tasks.start(writer.run(), f"write {partition}")
        task.add_done_callback(self._note_end)
        return writer

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """A writer only ends by a mistake of ours; nobody may wait for it then."""
        if not task.cancelled():
            self._error = task.exception()
            self._changed.set()

    def _finish(self, outcome: BatchOutcome) -> None:
        self._waiting_bytes -= outcome.batch.size_bytes
        self._changed.set()
        if outcome.error is not None:
            # The numbers of its records are missing now: later ones would be refused.
            self._identity = None
        if self._tell is not None:
            self._tell(outcome)
        elif outcome.error is not None and self._error is None:
            self._error = outcome.error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def _identify(self) -> ProducerIdentity:
        async with self._identifying:
            if self._identity is None:
                self._identity = (
                    await self._cluster.with_patience(self._ask_for_identity)
                    if self._options.acks == ACKS_ALL
                    else ProducerIdentity()
                )
            return self._identity

    async def _ask_for_identity(self) -> ProducerIdentity:
        connection = await self._cluster.connection(None)
        if not connection.serves(ApiKey.INIT_PRODUCER_ID):
            return ProducerIdentity()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NEVER_MS)
        answer = await connection.ask(request, InitProducerIdResponse)
        check(answer.error_code, "no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)
