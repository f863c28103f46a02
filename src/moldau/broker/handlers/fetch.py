"""Fetch (versions 4 to 18): slices of segments, without looking into them. A fetch that finds too
little waits until high watermarks move, or until its time is up.

Not served: reading from the closest replica (rack id); every client reads from the leader.
"""

import asyncio
from collections.abc import Iterable

from moldau.broker.context import RequestContext
from moldau.broker.fetch_sessions import Asked, FullFetch, IncrementalFetch
from moldau.broker.leader_hints import leader_hint
from moldau.broker.partition import Partition
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from moldau.storage.log import Log
from moldau.storage.log_read import Isolation, ReadResult
from moldau.types import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

WAIT_MS_MAX = 300_000
TOPIC_IDS_SINCE_VERSION = 13
LEADER_HINTS_SINCE_VERSION = 16
REPLICA_STATE_SINCE_VERSION = 15
STORAGE_ERRORS_SINCE_VERSION = 6

_ISOLATIONS = {0: Isolation.HIGH_WATERMARK, 1: Isolation.COMMITTED}
_MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


def handle_fetch(
    ctx: RequestContext, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse]:
    replica_id = request.replica_id
    if ctx.version >= REPLICA_STATE_SINCE_VERSION:
        replica_id = request.replica_state.replica_id
    try:
        named = ctx.broker.fetch_sessions.begin(
            request,
            ctx.version,
            is_follower=replica_id >= 0,
            now_ms=ctx.broker.clock.mono_ms(),
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(ctx, request, named, replica_id)
    fetch.read()
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    if wait_ms <= 0 or fetch.is_enough:
        return fetch.answer()
    return _WaitingFetch(fetch, wait_ms).answered


class _Fetch:
    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        named: FullFetch | IncrementalFetch,
        replica_id: int,
    ) -> None:
        self.ctx = ctx
        self._named = named
        self._asked = named.asked
        self._replica_id = replica_id
        self._refusal = _refusal(ctx, request, replica_id)
        self._isolation = Isolation.LOG_END
        if replica_id < 0:
            self._isolation = _ISOLATIONS.get(request.isolation_level, Isolation.HIGH_WATERMARK)
        self._max_bytes = min(
            request.max_bytes,
            ctx.broker.config.fetch_max_bytes,
            ctx.broker.budget.room_for_answer(),
        )
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._results: list[PartitionData | None] = []
        self._bytes_found = 0
        self._is_urgent = not self._asked
        """There is an error or something else to tell that does not wait for bytes."""
        self.places: dict[Partition, int] = {}
        """Of those that were read without an error."""

    @property
    def is_enough(self) -> bool:
        return self._is_urgent or self._bytes_found >= self._min_bytes

    def read(self) -> None:
        """As much as the limits allow. The first batch of all comes whatever its size."""
        self._results = [self._read_one(asked, place) for place, asked in enumerate(self._asked)]

    def read_again(self, moved: Iterable[Partition]) -> None:
        """What may have changed since; the rest has not."""
        for partition in moved:
            place = self.places[partition]
            before = self._results[place]
            if before is not None and before.records:
                self._bytes_found -= len(before.records)
            self._results[place] = self._read_one(self._asked[place], place)

    def _read_one(self, asked: Asked, place: int) -> PartitionData | None:
        """None if there is nothing that the client does not know."""
        try:
            if self._refusal is not None:
                raise self._refusal
            partition = self._partition(asked)
            answer = self._read_from(partition, asked)
            self.places[partition] = place
        except KafkaError as error:
            self._is_urgent = True
            return self._refused(asked, error.code)
        return answer

    def _read_from(self, partition: Partition, asked: Asked) -> PartitionData | None:
        wanted, log = asked.request, partition.log
        high_watermark, offset = log.high_watermark, wanted.fetch_offset
        if (
            self._named.leaves_out_quiet_ones
            and offset == high_watermark == asked.high_watermark
            and log.log_start_offset == asked.log_start_offset <= offset
            and wanted.last_fetched_epoch < 0
            and self._replica_id < 0
        ):
            return None
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"",
            aborted_transactions=None,
        )
        if wanted.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(log, wanted)
            if diverging is not None:
                answer.diverging_epoch = diverging
                self._is_urgent = True
                return answer
        left = max(self._max_bytes - self._bytes_found, 0)
        found = log.read(
            offset,
            min(wanted.partition_max_bytes, left),
            isolation=self._isolation,
            min_one_batch=self._bytes_found == 0,
        )
        if self._replica_id >= 0:
            partition.follower_fetched(self._replica_id, offset)
            answer.high_watermark = log.high_watermark
        self._bytes_found += len(found.records)
        answer.records = found.records
        answer.aborted_transactions = _aborted(found)
        return answer

    def _partition(self, asked: Asked) -> Partition:
        name = asked.topic
        if self.ctx.version >= TOPIC_IDS_SINCE_VERSION:
            known = self.ctx.broker.image.topic_name(asked.topic_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = known
        wanted = asked.request
        return self.ctx.broker.replicas.lookup(name, wanted.partition, wanted.current_leader_epoch)

    def _refused(self, asked: Asked, code: ErrorCode) -> PartitionData:
        if (
            code is ErrorCode.KAFKA_STORAGE_ERROR
            and self.ctx.version < STORAGE_ERRORS_SINCE_VERSION
        ):
            # Older clients would give up; this one makes them look for the leader and try again.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(
            partition_index=asked.request.partition,
            error_code=code,
            high_watermark=-1,
            records=b"",
            aborted_transactions=None,
        )

    def answer(self) -> FetchResponse:
        try:
            answers = self._named.answer(self._results)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        topics: list[FetchableTopicResponse] = []
        for asked, result in answers.partitions:
            last = topics[-1] if topics else None
            if last is None or last.topic != asked.topic or last.topic_id != asked.topic_id:
                last = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id)
                topics.append(last)
            last.partitions.append(result)
        response = FetchResponse(session_id=answers.session_id, responses=topics)
        if self._is_urgent and self.ctx.version >= LEADER_HINTS_SINCE_VERSION:
            response.node_endpoints = _hints(self.ctx, topics)
        return response


class _WaitingFetch:
    """Looks again when high watermarks moved, once for all that move in one turn of the loop."""

    def __init__(self, fetch: _Fetch, wait_ms: int) -> None:
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[FetchResponse] = self._loop.create_future()
        self._watched = list(fetch.places)
        self._moved: dict[Partition, None] = {}
        deadlines = fetch.ctx.broker.replicas.deadlines
        self._bucket = deadlines.add(wait_ms, self._time_is_up)
        for partition in self._watched:
            partition.watch(self._wake)
        # Also when the client is gone, which cancels it.
        self.answered.add_done_callback(self._forget)

    def _wake(self, partition: Partition) -> None:
        if not self._moved:
            self._loop.call_soon(self._look)
        self._moved[partition] = None

    def _look(self) -> None:
        moved, self._moved = self._moved, {}
        if not self.answered.done():
            self._fetch.read_again(moved)
            if self._fetch.is_enough:
                self.answered.set_result(self._fetch.answer())

    def _time_is_up(self) -> None:
        if not self.answered.done():
            self._fetch.read_again(self._moved)
            self.answered.set_result(self._fetch.answer())

    def _forget(self, _answered: "asyncio.Future[FetchResponse]") -> None:
        self._bucket.pop(self._time_is_up, None)
        for partition in self._watched:
            partition.unwatch(self._wake)


def _refusal(ctx: RequestContext, request: FetchRequest, replica_id: int) -> KafkaError | None:
    """What is wrong with the whole request is told for each partition: older versions have no other
    place for it.
    """
    if replica_id >= 0 and not ctx.peer.is_privileged_listener:
        # A client that poses as a replica could make others believe that records are safe.
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if request.max_bytes < 0 or request.isolation_level not in _ISOLATIONS:
        return KafkaError(ErrorCode.INVALID_REQUEST)
    return None


def _diverging_epoch(log: Log, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's log and ours part, if they do (KIP-595)."""
    epoch, end_offset = log.epochs.end_offset_for(
        LeaderEpoch(wanted.last_fetched_epoch), Offset(log.log_end_offset)
    )
    if epoch == NO_EPOCH or end_offset < 0 or wanted.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _aborted(found: ReadResult) -> list[AbortedTransaction] | None:
    if found.aborted is None:
        return None
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found.aborted
    ]


def _hints(ctx: RequestContext, topics: list[FetchableTopicResponse]) -> list[NodeEndpoint]:
    """Who leads what moved, and where it is reached."""
    endpoints: dict[int, NodeEndpoint] = {}
    image = ctx.broker.image
    for topic in topics:
        name = topic.topic or image.topic_name(topic.topic_id) or ""
        for partition in topic.partitions:
            if partition.error_code not in _MOVED:
                continue
            hint = leader_hint(
                image, TopicPartition(name, partition.partition_index), ctx.peer.listener_name
            )
            partition.current_leader = LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
            if hint.host is not None:
                endpoints[hint.leader_id] = NodeEndpoint(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    return list(endpoints.values())
