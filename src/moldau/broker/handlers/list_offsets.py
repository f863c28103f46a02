"""ListOffsets (versions 1 to 11): offsets by timestamp, and the special ones."""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import NamedTuple

from moldau.broker.records.cold_reads import ATTEMPTS_MAX, READS_PER_SEGMENT
from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import RequestContext
from moldau.net.slices import in_slices, slices_of
from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.protocol.versions import LIST_OFFSETS_SPECIAL
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.log import Log
from moldau.storage.log.read import (
    BatchOfTime,
    FoundOffset,
)
from moldau.types import NO_TIMESTAMP, LeaderEpoch, Offset

LEADER_EPOCH_FROM = 4
OFFSET_NOT_AVAILABLE_FROM = 5
READ_COMMITTED = 1
_ISOLATION_LEVELS = {0, READ_COMMITTED}

_ALWAYS_VISIBLE = {ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL}


def handle_list_offsets(
    ctx: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if ctx.is_large:
        return _answer_many(ctx, request)
    answering = _Answering(ctx, request)
    by_time = any(_is_by_time(p.timestamp) for topic in request.topics for p in topic.partitions)
    if by_time:
        return answering.with_times()
    return in_slices(answering.add, answering.requested(), lambda _: answering.response)


async def _answer_many(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    answering = await ctx.work(_Answering, ctx, request)
    return await answering.with_times()


def _is_by_time(timestamp_ms: int) -> bool:
    return timestamp_ms >= 0 or timestamp_ms == ListOffsetsTimestamp.MAX_TIMESTAMP


class _Search(NamedTuple):
    """The lookup in one partition, with the state as of its turn."""

    answer: ListOffsetsPartitionResponse
    log: Log
    timestamp_ms: int
    visible_end: int
    is_lagging: bool
    """True if a new leader does not know yet how much was committed: its log end might be lower
    than the one that the last leader reported (KIP-207).
    """


class _Answering:
    def __init__(self, ctx: RequestContext, request: ListOffsetsRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._duplicates = _duplicates(request)
        self._by_time: list[_Search] = []
        self.response = ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=t.name, partitions=[]) for t in request.topics]
        )

    def requested(self) -> Iterator[tuple[ListOffsetsTopicResponse, ListOffsetsPartition]]:
        for answered, topic in zip(self.response.topics, self._request.topics, strict=True):
            for partition in topic.partitions:
                yield answered, partition

    def add(self, part: tuple[ListOffsetsTopicResponse, ListOffsetsPartition]) -> None:
        topic, requested = part
        answer = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
        topic.partitions.append(answer)
        version = self._ctx.version
        is_duplicate = (topic.name, requested.partition_index) in self._duplicates
        if is_duplicate or self._request.isolation_level not in _ISOLATION_LEVELS:
            answer.error_code = ErrorCode.INVALID_REQUEST
        elif requested.timestamp < 0 and version < LIST_OFFSETS_SPECIAL.get(
            requested.timestamp, 1 << 15
        ):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            with self._reporting(answer):
                self._search(topic.name, requested, answer)

    async def with_times(self) -> ListOffsetsResponse:
        """Threads read what is not cached, and search large batches; the rest is done here."""
        await slices_of(self.add, self.requested())
        for search in self._by_time:
            with self._reporting(search.answer):
                self._put(search, await self._find(search))
            await asyncio.sleep(0)
        return self.response

    async def _find(self, search: _Search) -> FoundOffset | None:
        loop, workers = asyncio.get_running_loop(), self._ctx.broker.workers
        batch = await self._batch_of_time(search, search.log.log_start_offset)
        while batch is not None:
            if batch.is_heavy:
                found = await loop.run_in_executor(workers, batch.detached().find)
            else:
                found = batch.find()
            if found is not None or search.timestamp_ms == ListOffsetsTimestamp.MAX_TIMESTAMP:
                return found
            batch = await self._batch_of_time(search, Offset(batch.last_offset + 1))
        return None

    async def _batch_of_time(self, search: _Search, start_offset: Offset) -> BatchOfTime | None:
        cold_reads = self._ctx.broker.replicas.cold_reads
        reads, log = cold_reads.reads(), search.log
        for _ in range(ATTEMPTS_MAX + READS_PER_SEGMENT * len(log.segments)):
            try:
                return log.batch_of_time(search.timestamp_ms, Offset(start_offset), reads)
            except NotCachedError as cold:
                await cold_reads.load(log, cold)
        # The log changes faster than it can be read.
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)

    @contextlib.contextmanager
    def _reporting(self, answer: ListOffsetsPartitionResponse) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            answer.error_code = _known_code(error.code, self._ctx.version)

    def _search(
        self, topic: str, requested: ListOffsetsPartition, answer: ListOffsetsPartitionResponse
    ) -> None:
        partition = self._ctx.broker.replicas.lookup(
            topic, requested.partition_index, LeaderEpoch(requested.current_leader_epoch)
        )
        leader, log = partition.leading(), partition.log
        visible_end = _visible_end(self._ctx, self._request, partition)
        is_lagging = leader.is_lagging and visible_end < log.log_end_offset
        search = _Search(answer, log, requested.timestamp, visible_end, is_lagging)
        if requested.timestamp == ListOffsetsTimestamp.LATEST:
            self._put(search, FoundOffset(NO_TIMESTAMP, Offset(visible_end), leader.leader_epoch))
        elif not _is_by_time(requested.timestamp):
            self._put(search, log.offset_for_timestamp(requested.timestamp))
        else:
            self._by_time.append(search)

    def _put(self, search: _Search, found: FoundOffset | None) -> None:
        answer, timestamp_ms = search.answer, search.timestamp_ms
        if timestamp_ms == ListOffsetsTimestamp.LATEST:
            is_visible = not search.is_lagging
        else:
            is_visible = timestamp_ms in _ALWAYS_VISIBLE or (
                found is not None and found.offset < search.visible_end
            )
        if not is_visible and search.is_lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if found is not None and is_visible:
            answer.timestamp = found.timestamp_ms
            answer.offset = found.offset
            if found.leader_epoch is not None and self._ctx.version >= LEADER_EPOCH_FROM:
                answer.leader_epoch = found.leader_epoch


def _duplicates(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    duplicates: set[tuple[str, int]] = set()
    for topic in request.topics:
        for requested in topic.partitions:
            key = (topic.name, requested.partition_index)
            (duplicates if key in seen else seen).add(key)
    return duplicates


def _visible_end(ctx: RequestContext, request: ListOffsetsRequest, partition: Partition) -> Offset:
    """The end of the log for this client. Only brokers see all of it."""
    log = partition.log
    if request.replica_id >= 0 and ctx.peer.is_privileged_listener:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_FROM:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
