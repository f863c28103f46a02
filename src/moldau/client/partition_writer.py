"""One partition's batches on their way: collected, built, sent, tried again, split if too large."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from moldau.client.cluster import Cluster
from moldau.client.errors import check
from moldau.frozen import frozen
from moldau.protocol.batch_builder import BatchFacts, BatchOptions, finish_batch
from moldau.protocol.batches import BATCH_HEADER_SIZE, add_to_sequence
from moldau.protocol.compression import Compression
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.record_loops import encode_records
from moldau.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer, TopicPartition

ACKS_ALL = -1
NO_OFFSET = -1
# Offset within the batch, time, key, value, headers.
BatchRecord: TypeAlias = tuple[
    int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]
]


@frozen(kw_only=True)
class ProducerOptions:
    acks: int = ACKS_ALL
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    linger_ms: float = 5
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    """How much may wait to be sent; then the caller waits."""
    delivery_timeout_ms: int = 60_000
    keep_times: bool = False
    """Outcomes tell when each record was offered, for measuring."""


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class PendingBatch:
    __slots__ = ("created_ms", "offered_ms", "records", "size_bytes")

    def __init__(self, created_ms: float) -> None:
        self.created_ms = created_ms
        self.records: list[BatchRecord] = []
        self.size_bytes = 0
        self.offered_ms: list[float] = []


class BatchOutcome(NamedTuple):
    partition: TopicPartition
    batch: PendingBatch
    base_offset: int
    """NO_OFFSET if the broker did not say, or failed."""
    error: MoldauError | None


class PartitionWriter:
    """`run` is the body of a task; the others are called by the producer."""

    def __init__(
        self,
        partition: TopicPartition,
        cluster: Cluster,
        options: ProducerOptions,
        identify: Callable[[], Awaitable[ProducerIdentity]],
        on_done: Callable[[BatchOutcome], None],
    ) -> None:
        self._partition = partition
        self._cluster = cluster
        self._options = options
        self._identify = identify
        self._on_done = on_done
        self._batches: deque[PendingBatch] = deque()
        self._wake = asyncio.Event()
        self._is_urgent = False
        self._identity = ProducerIdentity()
        self._next_sequence = 0

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        size_bytes: int,
    ) -> None:
        batches = self._batches
        if batches and batches[-1].size_bytes + size_bytes <= self._options.batch_bytes:
            batch = batches[-1]
        else:
            batch = PendingBatch(self._cluster.clock.mono_ms())
            batches.append(batch)
            self._wake.set()
        batch.records.append((len(batch.records), timestamp, key, value, headers))
        batch.size_bytes += size_bytes
        if self._options.keep_times:
            batch.offered_ms.append(self._cluster.clock.mono_ms())

    def hurry(self, is_urgent: bool) -> None:
        """Do not wait for a batch to fill."""
        self._is_urgent = is_urgent
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._write(await self._next_batch())

    async def _next_batch(self) -> PendingBatch:
        while True:
            self._wake.clear()
            if not self._batches:
                await self._wake.wait()
                continue
            due_ms = self._batches[0].created_ms + self._options.linger_ms
            wait_ms = due_ms - self._cluster.clock.mono_ms()
            # Behind a full batch there is another one.
            if len(self._batches) > 1 or self._is_urgent or wait_ms <= 0:
                return self._batches.popleft()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _write(self, batch: PendingBatch) -> None:
        try:
            identity = await self._identify()
            if identity != self._identity:
                self._identity, self._next_sequence = identity, 0
            content = self._build(batch)
            base_offset = await self._cluster.with_patience(
                lambda: self._send(content), patience_ms=self._options.delivery_timeout_ms
            )
        except MoldauError as error:
            if _is_too_large(error) and len(batch.records) > 1:
                self._batches.extendleft(reversed(_halves(batch)))
                return
            self._on_done(BatchOutcome(self._partition, batch, NO_OFFSET, error))
        else:
            self._next_sequence = add_to_sequence(self._next_sequence, len(batch.records))
            self._on_done(BatchOutcome(self._partition, batch, base_offset, None))

    def _build(self, batch: PendingBatch) -> Buffer:
        base_timestamp = batch.records[0][1]
        is_numbered = self._identity.producer_id != NO_PRODUCER_ID
        options = BatchOptions(
            compression=self._options.compression,
            compression_level=self._options.compression_level,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequence if is_numbered else NO_SEQUENCE,
        )
        facts = BatchFacts(
            base_offset=0,
            last_offset_delta=len(batch.records) - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max(record[1] for record in batch.records),
            record_count=len(batch.records),
        )
        body = encode_records(batch.records, base_timestamp, BATCH_HEADER_SIZE, 0)
        return finish_batch(body, options, facts)

    async def _send(self, content: Buffer) -> int:
        name, number = self._partition
        topic = await self._cluster.topic(name)
        connection = await self._cluster.connection(await self._cluster.leader(self._partition))
        records = PartitionProduceData(index=number, records=content)
        request = ProduceRequest(
            acks=self._options.acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=topic.topic_id, partition_data=[records])
            ],
        )
        if not self._options.acks:
            await connection.channel.tell(request, connection.newest_of(ProduceRequest))
            return NO_OFFSET
        answer = await connection.ask(request, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It is in the log; the answer to the first attempt was lost.
            return NO_OFFSET
        reasons = [one.batch_index_error_message or "" for one in row.record_errors[:1]]
        detail = "".join(reasons) or row.error_message
        check(row.error_code, f"{self._partition}: {detail}" if detail else str(self._partition))
        return row.base_offset


def _is_too_large(error: MoldauError) -> bool:
    codes = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
    return isinstance(error, KafkaError) and error.code in codes


def _halves(batch: PendingBatch) -> list[PendingBatch]:
    """The topic allows less than what was collected."""
    middle = len(batch.records) // 2
    halves = []
    for part in (slice(None, middle), slice(middle, None)):
        half = PendingBatch(batch.created_ms)
        half.records = [(number, *record[1:]) for number, record in enumerate(batch.records[part])]
        half.offered_ms = batch.offered_ms[part]
        half.size_bytes = batch.size_bytes * len(half.records) // len(batch.records)
        halves.append(half)
    # What is released together must be what was taken.
    halves[1].size_bytes = batch.size_bytes - halves[0].size_bytes
    return halves
