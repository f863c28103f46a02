"""Reads partitions: one fetch per leader under way, what came waits in a bounded buffer until it is
taken. Positions move when bytes arrive; who commits positions counts what it has taken.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from moldau.client.admin.offsets import EARLIEST, list_offsets
from moldau.client.cluster import Cluster
from moldau.client.errors import check
from moldau.frozen import frozen
from moldau.net.tasks import Tasks
from moldau.protocol.batches import RecordBatch, iterate_batches
from moldau.protocol.compression import STORED_OUTPUT_BYTES_MAX
from moldau.protocol.control_records import committed_batches
from moldau.protocol.enums import IsolationLevel
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.record import Record
from moldau.types import TopicPartition, Uuid

_LANE = "fetch"
_CONSUMER = -1


@frozen(kw_only=True)
class FetchOptions:
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    """No further fetch is sent while so much waits to be taken."""
    out_of_range: int | None = EARLIEST
    """Where to go on when a position is no longer there; None: that is an error."""


class FetchedPartition(NamedTuple):
    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    high_watermark: int
    batches: tuple[RecordBatch, ...]
    """What the isolation level lets see; none if only markers or aborted records came."""

    def records(self) -> Iterator[Record]:
        for batch in self.batches:
            records = batch.records(STORED_OUTPUT_BYTES_MAX)
            if batch.base_offset < self.fetch_offset:
                # A fetch from the middle of a batch gives the whole batch.
                records = [record for record in records if record.offset >= self.fetch_offset]
            yield from records

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_in_bytes for batch in self.batches)


class Fetcher:
    """Use as `async with`."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        options: FetchOptions | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options or FetchOptions()
        self._positions = dict(positions)
        self._leaders: dict[TopicPartition, int] = {}
        self._homeless = set(positions)
        self._homeless_grew = asyncio.Event()
        self._fetching: set[int] = set()
        self._buffer: deque[FetchedPartition] = deque()
        self.buffered_bytes = 0
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._is_interrupted = False
        self._error: BaseException | None = None
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        self._homeless_grew.set()
        self._start(self._keep_homes(), "find leaders to fetch from")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._tasks.close()

    async def next(self, timeout_ms: float | None = None) -> FetchedPartition | None:
        """None: nothing came in time, or somebody interrupted."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not (self._buffer or self._error or self._is_interrupted):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None
        if self._is_interrupted:
            self._is_interrupted = False
            return None
        if not self._buffer and self._error is not None:
            raise self._error
        fetched = self._buffer.popleft()
        self.buffered_bytes -= fetched.size_bytes
        self._taken.set()
        return fetched

    def interrupt(self) -> None:
        """Whoever waits in `next`, or comes next, gets None."""
        self._is_interrupted = True
        self._arrived.set()

    # Finding leaders.

    async def _keep_homes(self) -> None:
        while True:
            await self._homeless_grew.wait()
            self._homeless_grew.clear()
            partitions = list(self._homeless)
            try:
                found = await self._cluster.with_patience(
                    partial(self._cluster.by_leader, partitions)
                )
            except MoldauError as error:
                self._fail(error)
                return
            self._homeless.difference_update(partitions)
            for node_id, led in found.items():
                self._leaders.update(dict.fromkeys(led, node_id))
                if node_id not in self._fetching:
                    self._fetching.add(node_id)
                    self._start(self._fetch_from(node_id), f"fetch from {node_id}")

    async def _lose(self, partitions: list[TopicPartition]) -> None:
        """Their leader is not who we thought."""
        for partition in partitions:
            self._leaders.pop(partition, None)
        self._homeless.update(partitions)
        self._cluster.forget()
        await self._cluster.clock.sleep(self._cluster.settings.retry.first_ms)
        self._homeless_grew.set()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, name).add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Nobody may wait for a task that ended by a mistake of ours."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._arrived.set()

    # Fetching.

    async def _fetch_from(self, node_id: int) -> None:
        try:
            while mine := [one for one, leader in self._leaders.items() if leader == node_id]:
                while self.buffered_bytes >= self._options.buffer_bytes:
                    self._taken.clear()
                    await self._taken.wait()
                try:
                    await self._fetch(node_id, mine)
                except MoldauError as error:
                    if not self._cluster.may_pass(error):
                        raise
                    await self._lose(mine)
        except MoldauError as error:
            self._fail(error)
        finally:
            self._fetching.discard(node_id)

    async def _fetch(self, node_id: int, partitions: list[TopicPartition]) -> None:
        topics: dict[str, FetchTopic] = {}
        names: dict[Uuid, str] = {}
        for name, topic in (await self._cluster.topics(one.topic for one in partitions)).items():
            topics[name] = FetchTopic(topic=name, topic_id=topic.topic_id)
            names[topic.topic_id] = name
        for partition in partitions:
            topics[partition.topic].partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self._positions[partition],
                    partition_max_bytes=self._options.partition_bytes,
                )
            )
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._options.max_bytes,
            isolation_level=self._options.isolation,
            topics=list(topics.values()),
        )
        connection = await self._cluster.connection(node_id, _LANE)
        answer = await connection.ask(request, FetchResponse)
        check(answer.error_code, f"fetching from broker {node_id}")
        lost = []
        for result in answer.responses:
            for row in result.partitions:
                name = result.topic or names[result.topic_id]
                partition = TopicPartition(name, row.partition_index)
                if not await self._take(partition, row):
                    lost.append(partition)
        if lost:
            await self._lose(lost)

    async def _take(self, partition: TopicPartition, row: PartitionData) -> bool:
        """False: another broker has to be asked."""
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(partition)
        elif row.error_code in RETRIABLE:
            return False
        else:
            check(row.error_code, str(partition))
            self._keep(partition, row)
        return True

    def _keep(self, partition: TopicPartition, row: PartitionData) -> None:
        assert row.records is None or isinstance(row.records, bytes | memoryview)
        batches = list(iterate_batches(row.records or b""))
        if not batches:
            return
        for batch in batches:
            batch.check_crc()
        if self._options.isolation is IsolationLevel.READ_COMMITTED:
            aborted = row.aborted_transactions or []
            visible = committed_batches(batches, [(t.producer_id, t.first_offset) for t in aborted])
        else:
            visible = (batch for batch in batches if not batch.is_control)
        fetched = FetchedPartition(
            partition,
            self._positions[partition],
            batches[-1].next_offset,
            row.high_watermark,
            tuple(visible),
        )
        self._positions[partition] = fetched.next_offset
        self.buffered_bytes += fetched.size_bytes
        self._buffer.append(fetched)
        self._arrived.set()

    async def _reset(self, partition: TopicPartition) -> None:
        if self._options.out_of_range is None:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition} has no offset {self._positions[partition]}",
            )
        found = await list_offsets(self._cluster, {partition: self._options.out_of_range})
        self._positions[partition] = found[partition].offset
