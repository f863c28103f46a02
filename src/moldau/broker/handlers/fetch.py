"""Fetch (versions 4 to 18): slices of segments, without parsing them. A fetch that finds too little
waits until the missing bytes have arrived or its time is up. Data in the page cache is answered
at once; threads read the rest.

Not served: reading from the closest replica (rack id); every client reads from the leader.
"""

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.records.cold_reads import ATTEMPTS_MAX, changes_too_fast
from moldau.broker.records.fetch_answers import diverging_epoch, fill, leader_endpoints
from moldau.broker.records.fetch_sessions import (
    FullFetch,
    IncrementalFetch,
    PartitionKey,
    RequestedPartition,
    requested_in,
)
from moldau.broker.records.waiting_fetch import Attempt, Cold, WaitingFetch, finish
from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import RequestContext
from moldau.broker.server.memory_budget import SMALL_BYTES
from moldau.net.slices import Slices, free_in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.protocol.versions import FETCH_TOPIC_IDS
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.disk.cached_views import view_of
from moldau.storage.log.read import FoundBatches, Isolation
from moldau.types import NO_FETCH_SESSION, BrokerId, LeaderEpoch, Offset

if TYPE_CHECKING:
    from moldau.storage.log.log import Log

WAIT_MS_MAX = 300_000
FEW_PARTITIONS = 8
"""So few partitions take less than a slice of time, unless they are read from the disk."""
LEADER_HINTS_FROM = 16
REPLICA_STATE_FROM = 15
STORAGE_ERRORS_FROM = 6

_ISOLATIONS = {0: Isolation.HIGH_WATERMARK, 1: Isolation.COMMITTED}


def handle_fetch(
    ctx: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    if ctx.is_large:
        return _fetch_many(ctx, request)
    return _begin(ctx, request, None)


async def _fetch_many(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """Handles a fetch of thousands of partitions."""
    requested = await ctx.work(requested_in, request)
    outcome = _begin(ctx, request, requested)
    response = outcome if isinstance(outcome, FetchResponse) else await outcome
    if response.session_id == NO_FETCH_SESSION:
        # Otherwise the session has them.
        del outcome
        await free_in_slices(requested)
    return response


def _begin(
    ctx: RequestContext,
    request: FetchRequest,
    requested: dict[PartitionKey, RequestedPartition] | None,
) -> FetchResponse | Awaitable[FetchResponse]:
    replica_id = request.replica_id
    if ctx.version >= REPLICA_STATE_FROM:
        replica_id = request.replica_state.replica_id
    try:
        named = ctx.broker.fetch_sessions.begin(
            request,
            ctx.version,
            requested,
            is_follower=replica_id >= 0,
            now_ms=ctx.broker.clock.mono_ms(),
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = Fetch(ctx, request, named, BrokerId(replica_id))
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    attempt = fetch.attempt(is_last=wait_ms <= 0)
    try:
        cold = next(attempt)
    except StopIteration as ended:
        answer: FetchResponse | None = ended.value
        return answer or WaitingFetch(fetch, wait_ms).answered
    return _answer_cold(fetch, attempt, cold, wait_ms)


async def _answer_cold(fetch: "Fetch", attempt: Attempt, cold: Cold, wait_ms: int) -> FetchResponse:
    broker = fetch.ctx.broker
    began_ms = broker.clock.mono_ms()
    answer = await finish(attempt, cold, broker)
    if answer is not None:
        return answer
    left_ms = max(wait_ms - (broker.clock.mono_ms() - began_ms), 1)
    return await WaitingFetch(fetch, left_ms).answered


class Fetch:
    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        named: FullFetch | IncrementalFetch,
        replica_id: BrokerId,
    ) -> None:
        self.ctx = ctx
        self._request = request
        self._named = named
        self._requested = named.requested
        self._replica_id = replica_id
        self._refusal = _refusal(ctx, request, replica_id)
        self._isolation = Isolation.LOG_END
        if replica_id < 0:
            self._isolation = _ISOLATIONS.get(request.isolation_level, Isolation.HIGH_WATERMARK)
        # Other tasks run between many partitions.
        is_sent_at_once = len(self._requested) <= FEW_PARTITIONS and not ctx.peer.is_answered_later
        sends_files = ctx.peer.takes_files and is_sent_at_once
        self._reads = ctx.broker.replicas.cold_reads.reads(sends_files=sends_files)
        self._results: list[PartitionData | None] = [None] * len(self._requested)
        self._found: dict[int, FoundBatches] = {}
        """The batches to read, by index of the partition. Stale once other tasks have run."""
        self._logs: dict[int, Log] = {}
        self._is_stale = False
        self._bytes_found = self._max_bytes = self._min_bytes = 0
        self._bytes_read = self._held_bytes = 0
        self.has_room = True
        """Whether the node's memory has room for records."""
        self._topics: list[FetchableTopicResponse] = []
        self._got_records: list[RequestedPartition] = []
        self._is_urgent = not self._requested
        """There is an error or another change to report, for which the response does not wait for
        bytes.
        """
        self.indexes: dict[Partition, int] = {}
        """Partitions that were checked without an error."""
        self.full: set[Partition] = set()
        """Partitions with more data than fits into the response."""

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    @property
    def missing_bytes(self) -> int:
        """0 if there is something to report at once."""
        return 0 if self._is_urgent else max(self._min_bytes - self._bytes_found, 0)

    def attempt(self, changed: Iterable[Partition] | None = None, *, is_last: bool) -> Attempt:
        """Finds the batches that can be read. If they are enough, or this is the last attempt,
        reads as much as the limits allow. The first batch is returned regardless of its size, if
        there is room for any. After the first attempt only partitions that have `changed` or
        had records are checked.
        """
        if not self.has_room and changed is not None:
            # These had records, but there was no room for any.
            changed = {*changed, *self.full}
        self._find_room()
        indexes: Sequence[int] = range(len(self._requested))
        if changed is not None:
            indexes = sorted({*map(self.indexes.__getitem__, changed), *self._found})
        self._found = {}
        self._bytes_found = self._bytes_read = 0
        self._is_stale = False
        if len(indexes) > FEW_PARTITIONS:
            return (yield from self._attempt_many(indexes, is_last=is_last))
        for index in indexes:
            if (cold := self._find(index)) is not None:
                yield from self._find_loaded(index, cold)
        if not is_last and self.missing_bytes:
            self._reads.forget()
            return None
        for index in list(self._found):
            cold = None if self._is_stale else self._read_now(index)
            if self._is_stale:
                yield from self._read_found(index, cold)
                break
        self._reads.forget()
        self._add_results(self._requested, self._results)
        if changed is not None or self._is_stale or self.ctx.is_large:
            # Otherwise it is sent in this very turn.
            self._hold_until_sent()
        return self._response()

    def _find_room(self) -> None:
        broker, request = self.ctx.broker, self._request
        room = broker.budget.room_for_answer(is_privileged=self.ctx.peer.is_privileged_listener)
        self.has_room = room > 0
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes, room)
        self._min_bytes = min(request.min_bytes, self._max_bytes if self.has_room else 1)

    def _attempt_many(self, indexes: Sequence[int], *, is_last: bool) -> Attempt:
        """Nothing is read until the attempt knows that there is enough. From then on each partition
        is read when it is found, before it can change.
        """
        slices = Slices()
        try:
            for index in indexes:
                yield from self._find_loaded(index)
                if index in self._found and (is_last or not self.missing_bytes):
                    yield from self._read(index, is_fresh=True)
                if self._bytes_read == self._bytes_found:
                    # Otherwise every read would search the reads before it.
                    self._reads.forget()
                if slices.is_over:
                    yield from self._let_others_run(slices)
            if not is_last and self.missing_bytes:
                return None
            for index in list(self._found):
                yield from self._read(index)
                if slices.is_over:
                    yield from self._let_others_run(slices)
            for index in range(len(self._requested)):
                self._add_results(
                    self._requested[index : index + 1], self._results[index : index + 1]
                )
                if slices.is_over:
                    yield from self._let_others_run(slices)
            self._hold_until_sent()
            return self._response()
        finally:
            self._reads.forget()
            self._hold(0)

    def _let_others_run(self, slices: Slices) -> Generator[Cold, None, None]:
        """Lets other tasks run. Found batches may change meanwhile; those that were read count as
        an unsent response.
        """
        self._is_stale = True
        self._hold(self._bytes_read)
        yield None
        slices.begin()

    def _hold(self, size_bytes: int) -> None:
        change, self._held_bytes = size_bytes - self._held_bytes, size_bytes
        if change:
            self.ctx.broker.budget.hold_answers(change)

    def _hold_until_sent(self) -> None:
        """Many fetches may be read in one turn: each must see the others' memory before their
        connections count it as unsent.
        """
        size_bytes = self._bytes_found
        if size_bytes > SMALL_BYTES:
            hold = self.ctx.broker.budget.hold_answers
            hold(size_bytes)
            asyncio.get_running_loop().call_soon(hold, -size_bytes)

    def _find_loaded(self, index: int, cold: Cold = None) -> Generator[Cold, None, None]:
        """Finds what one partition has, once threads have loaded what the page cache lacks."""
        for _ in range(ATTEMPTS_MAX):
            if cold is not None:
                try:
                    yield cold
                except KafkaError as error:
                    self._refuse(index, error)
                    return
            cold = self._find(index)
            if cold is None:
                return
        self._refuse(index, changes_too_fast(self._requested[index].topic))

    def _find(self, index: int) -> Cold:
        """Finds what one partition has, without reading it."""
        partition: Partition | None = None
        try:
            if self._refusal is not None:
                raise self._refusal
            partition = self._partition(self._requested[index])
            self._results[index] = self._find_in(partition, index)
            self.indexes[partition] = index
        except KafkaError as error:
            self._refuse(index, error)
        except NotCachedError as cold:
            assert partition is not None
            self._is_stale = True
            return partition.log, cold
        return None

    def _find_in(self, partition: Partition, index: int) -> PartitionData | None:
        """Returns None if nothing has changed since the last response."""
        requested, log = self._requested[index], partition.log
        request = requested.request
        high_watermark, offset = log.high_watermark, request.fetch_offset
        if (
            self._named.omits_unchanged
            and offset == high_watermark == requested.high_watermark
            and log.log_start_offset == requested.log_start_offset <= offset
            and request.last_fetched_epoch < 0
            and self._replica_id < 0
        ):
            return None
        answer = PartitionData(
            partition_index=request.partition,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"",
            aborted_transactions=None,
        )
        if request.last_fetched_epoch >= 0:
            diverging = diverging_epoch(log, request)
            if diverging is not None:
                answer.diverging_epoch = diverging
                self._is_urgent = True
                return answer
        max_bytes = min(request.partition_max_bytes, max(self._max_bytes - self._bytes_found, 0))
        # Any record is enough: then the response contains what is found.
        is_sure = self._min_bytes - self._bytes_found <= 1
        self._reads.next_log(max_bytes, is_sure=is_sure)
        found = log.find(
            Offset(offset),
            max_bytes,
            self._reads,
            isolation=self._isolation,
            min_one_batch=self._bytes_found == 0 and self.has_room,
        )
        if self._replica_id >= 0:
            partition.follower_fetched(BrokerId(self._replica_id), Offset(offset))
            answer.high_watermark = log.high_watermark
        (self.full.discard if found.is_all else self.full.add)(partition)
        if size_bytes := found.size_bytes:
            if is_sure and len(self._requested) == 1:
                # No other partition can make it wait.
                fill(answer, log.take(found, self._reads))
                self._bytes_read += size_bytes
            else:
                self._found[index] = found
                self._logs[index] = log
            self._bytes_found += size_bytes
        elif self._isolation is Isolation.COMMITTED:
            answer.aborted_transactions = []
        return answer

    def _read(
        self, index: int, cold: Cold = None, *, is_fresh: bool = False
    ) -> Generator[Cold, None, None]:
        """Reads what was found in one partition, once threads have loaded what the page cache
        lacks. `is_fresh`: it was found in this turn.
        """
        answer = self._results[index]
        if answer is not None and answer.records:
            return
        for _ in range(ATTEMPTS_MAX):
            if cold is not None:
                try:
                    yield cold
                except KafkaError as error:
                    self._refuse_found(index, error)
                    return
            if self._is_stale and not is_fresh:
                before = self._found.pop(index, None)
                self._bytes_found -= before.size_bytes if before is not None else 0
                yield from self._find_loaded(index)
            is_fresh = False
            cold = self._read_now(index)
            if cold is None:
                return
        self._refuse_found(index, changes_too_fast(self._requested[index].topic))

    def _read_found(self, index: int, cold: Cold) -> Generator[Cold, None, None]:
        """Reads everything that was found, some of it from the disk. Meanwhile the memory of views
        may leave the page cache, or change: everything is copied.
        """
        self._reads.send_no_files()
        for earlier, found in self._found.items():
            answer = self._results[earlier]
            if answer is not None and view_of(answer.records) is not None:
                answer.records = b""
                self._bytes_read -= found.size_bytes
        yield from self._read(index, cold)
        for each in list(self._found):
            yield from self._read(each)

    def _read_now(self, index: int) -> Cold:
        """Reads what was found in one partition, if anything was."""
        answer, found = self._results[index], self._found.get(index)
        if answer is None or found is None:
            return None
        log = self._logs[index]
        try:
            result = log.take(found, self._reads)
        except NotCachedError as cold:
            self._is_stale = True
            return log, cold
        except KafkaError as error:
            self._refuse_found(index, error)
            return None
        fill(answer, result)
        self._bytes_read += found.size_bytes
        return None

    def _partition(self, requested: RequestedPartition) -> Partition:
        name = requested.topic
        if self.ctx.version >= FETCH_TOPIC_IDS:
            known = self.ctx.broker.image.topic_name(requested.topic_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = known
        request = requested.request
        return self.ctx.broker.replicas.lookup(
            name, request.partition, LeaderEpoch(request.current_leader_epoch)
        )

    def _refuse_found(self, index: int, error: KafkaError) -> None:
        self._bytes_found -= self._found.pop(index).size_bytes
        self._refuse(index, error)

    def _refuse(self, index: int, error: KafkaError) -> None:
        self._is_urgent = True
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.ctx.version < STORAGE_ERRORS_FROM:
            # Older clients would give up; this error makes them look for the leader and retry.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._results[index] = PartitionData(
            partition_index=self._requested[index].request.partition,
            error_code=code,
            high_watermark=-1,
            records=b"",
            aborted_transactions=None,
        )

    def stale_partitions(self) -> list[Partition]:
        """The checked partitions that may have more by now, because other tasks have run."""
        if not self._is_stale:
            return []
        return [
            partition
            for partition, index in self.indexes.items()
            if self._has_more(partition, index)
        ]

    def _has_more(self, partition: Partition, index: int) -> bool:
        if self._isolation is Isolation.LOG_END or not partition.has_log or not partition.leader:
            return True
        log, result = partition.log, self._results[index]
        if result is None:
            return log.high_watermark != self._requested[index].high_watermark
        if self._isolation is Isolation.COMMITTED:
            return log.last_stable_offset != result.last_stable_offset
        return log.high_watermark != result.high_watermark

    def _add_results(
        self, partitions: list[RequestedPartition], results: list[PartitionData | None]
    ) -> None:
        """Adds the results that must be sent to the response."""
        topics, must_send = self._topics, self._named.must_send
        last = topics[-1] if topics else None
        for requested, result in zip(partitions, results, strict=True):
            if result is not None and must_send(requested, result):
                if (
                    last is None
                    or last.topic != requested.topic
                    or last.topic_id != requested.topic_id
                ):
                    last = FetchableTopicResponse(
                        topic=requested.topic, topic_id=requested.topic_id
                    )
                    topics.append(last)
                last.partitions.append(result)
                if result.records:
                    self._got_records.append(requested)

    def _response(self) -> FetchResponse:
        try:
            session_id = self._named.answered(self._got_records)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        response = FetchResponse(session_id=session_id, responses=self._topics)
        if self._is_urgent and self.ctx.version >= LEADER_HINTS_FROM:
            response.node_endpoints = leader_endpoints(self.ctx, self._topics)
        return response


def _refusal(ctx: RequestContext, request: FetchRequest, replica_id: BrokerId) -> KafkaError | None:
    """An error of the whole request is reported for each partition: older versions have no other
    field for it.
    """
    if replica_id >= 0 and not ctx.peer.is_privileged_listener:
        # A client that poses as a replica could make records look replicated that are not.
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if request.max_bytes < 0 or request.isolation_level not in _ISOLATIONS:
        return KafkaError(ErrorCode.INVALID_REQUEST)
    return None
