"""Reads one range of offsets as Arrow batches. While one response is decoded, the next is
requested; memory holds no more than these two, regardless of the range.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from moldau.client.admin.offsets import EARLIEST, LATEST, list_offsets
from moldau.client.cluster.node_connection import VersionRange, supported_versions
from moldau.client.errors import UnknownTopicError, check
from moldau.core.spark.errors import DataLossError
from moldau.core.spark.planning import OffsetRange
from moldau.protocol.enums import IsolationLevel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.records.arrow import ArrowRead, decode_to_arrow_pieces
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX
from moldau.protocol.versions import FETCH_NAMES_MAX
from moldau.spark.runtime.connection import Connection
from moldau.types import CONSUMER_REPLICA, FINAL_FETCH_EPOCH, ZERO_UUID, Buffer, Uuid

ROWS_PER_BATCH = 10_000
"""The size that Spark processes fastest."""
# A task reads one partition at a time, so it fetches more at once than a consumer of many.
FETCH_BYTES = 4 << 20
# Decompressed at once: a single response may hold gigabytes.
PIECE_BYTES = 32 << 20
_LANE = "fetch"


class _RecreatedError(MoldauError):
    """The topic was deleted and created again. Unlike errors of brokers, this is not transient."""


class _Answer(NamedTuple):
    records: Buffer
    aborted: list[tuple[int, int]] | None
    next_offset: int


class RangeReader:
    def __init__(
        self,
        connection: Connection,
        offset_range: OffsetRange,
        columns: tuple[str, ...],
        *,
        fails_on_data_loss: bool,
    ) -> None:
        self._connection = connection
        self._cluster = connection.cluster
        self._range = offset_range
        self._columns = columns
        self._fails_on_data_loss = fails_on_data_loss
        self._stalled_since_ms: float | None = None
        is_set = connection.config.max_partition_fetch_bytes != 1 << 20
        self._bytes = connection.fetch.partition_bytes if is_set else FETCH_BYTES

    def batches(self) -> Iterator[Any]:
        """`pyarrow.RecordBatch`es of at most ROWS_PER_BATCH rows."""
        position = self._range.start
        thread = self._connection.thread
        request = thread.start(self._fetch(position)) if position < self._range.stop else None
        try:
            while request is not None:
                answer = request.result()
                start, position = position, answer.next_offset
                request = None
                if position < self._range.stop:
                    request = thread.start(self._fetch(position))
                if answer.records:
                    yield from self._decoded(answer, start)
        finally:
            if request is not None:
                request.cancel()

    def _decoded(self, answer: _Answer, start: int) -> Iterator[Any]:
        topic, number = self._range.partition
        read = ArrowRead(
            topic=topic,
            partition=number,
            columns=self._columns,
            start_offset=start,
            stop_offset=self._range.stop,
            aborted=answer.aborted,
            verify_crc=self._connection.fetch.check_crcs,
            decompressed_bytes_max=STORED_OUTPUT_BYTES_MAX,
        )
        for rows in decode_to_arrow_pieces(answer.records, read, PIECE_BYTES):
            for first in range(0, rows.num_rows, ROWS_PER_BATCH):
                yield rows.slice(first, ROWS_PER_BATCH)

    # These run in the event loop.

    async def _fetch(self, position: int) -> _Answer:
        try:
            return await self._cluster.with_retries(lambda: self._request(position))
        except UnknownTopicError:
            return self._lost(position, "the topic is deleted", self._range.stop)
        except _RecreatedError:
            reason = "the topic was deleted and created again"
            return self._lost(position, reason, self._range.stop)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        return await self._out_of_range(position)

    async def _request(self, position: int) -> _Answer:
        partition = self._range.partition
        topic = await self._cluster.topic(partition.topic)
        planned_id = Uuid(self._range.topic_id or ZERO_UUID)
        if ZERO_UUID not in {planned_id, topic.topic_id} and planned_id != topic.topic_id:
            raise _RecreatedError(partition.topic)
        node_id = await self._cluster.leader(partition)
        fetch = self._connection.fetch
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA,
            max_wait_ms=fetch.max_wait_ms,
            min_bytes=1,
            max_bytes=max(self._bytes, fetch.max_bytes),
            isolation_level=fetch.isolation,
            session_id=0,
            session_epoch=FINAL_FETCH_EPOCH,
            topics=[
                FetchTopic(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=partition.partition,
                            current_leader_epoch=topic.partition(partition.partition).leader_epoch,
                            fetch_offset=position,
                            partition_max_bytes=self._bytes,
                        )
                    ],
                )
            ],
        )
        ours = supported_versions(FetchRequest)
        newest = FETCH_NAMES_MAX if topic.topic_id == ZERO_UUID else ours.newest
        connection = await self._cluster.connection(node_id, _LANE)
        answer = await connection.send(
            request,
            FetchResponse,
            VersionRange(ours.oldest, newest),
            timeout_ms=fetch.request_timeout_ms + fetch.max_wait_ms,
        )
        check(answer.error_code, f"fetching from broker {node_id}")
        (row,) = answer.responses[0].partitions
        check(row.error_code, str(partition))
        return self._read(row, position, is_throttled=answer.throttle_time_ms > 0)

    def _read(self, row: PartitionData, position: int, *, is_throttled: bool) -> _Answer:
        is_committed = self._connection.fetch.isolation is IsolationLevel.READ_COMMITTED
        aborted = None
        if is_committed:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in row.aborted_transactions or ()
            ]
        records = row.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        next_offset = position
        for batch in iterate_batches(records):
            next_offset = batch.last_offset + 1
        if next_offset > position:
            self._stalled_since_ms = None
            return _Answer(records, aborted, next_offset)
        end = row.last_stable_offset if is_committed else row.high_watermark
        if end >= self._range.stop and not is_throttled:
            # Compaction has removed all records up to the end.
            return _Answer(b"", None, self._range.stop)
        return self._stalled(position, end, is_throttled=is_throttled)

    def _stalled(self, position: int, end: int, *, is_throttled: bool) -> _Answer:
        """Waits for a new leader to learn the high watermark, up to a deadline."""
        now_ms = self._cluster.clock.mono_ms()
        if self._stalled_since_ms is None or is_throttled:
            self._stalled_since_ms = now_ms
        elif now_ms - self._stalled_since_ms > self._connection.config.default_api_timeout_ms:
            reason = f"only records before {end} are committed"
            return self._lost(position, reason, self._range.stop)
        return _Answer(b"", None, position)

    async def _out_of_range(self, position: int) -> _Answer:
        partition = self._range.partition
        isolation = self._connection.fetch.isolation
        first = (await list_offsets(self._cluster, {partition: EARLIEST}))[partition].offset
        last = (await list_offsets(self._cluster, {partition: LATEST}, isolation))[partition].offset
        if position < first:
            reason = f"the log begins at {first} now"
            return self._lost(position, reason, min(first, self._range.stop))
        return self._lost(position, f"the log ends at {last} now", self._range.stop)

    def _lost(self, position: int, reason: str, resume_at: int) -> _Answer:
        if self._fails_on_data_loss:
            raise data_loss(self._range.partition, position, self._range.stop, reason)
        return _Answer(b"", None, resume_at)


def data_loss(partition: object, start: int, stop: int, reason: str) -> DataLossError:
    return DataLossError(
        f"{partition}: records from {start} to {stop} cannot be read, {reason}; "
        "set failOnDataLoss=false to continue without them"
    )
