"""Produce (versions 3 to 13). Stage one appends each partition's batch, in the order of the
request; stage two waits until all of them are committed, for acks=all. No record is parsed here.

A batch that would begin a transaction on its partition is appended after the transaction's
coordinator has agreed; from version 12 on that verification adds the partition.

A response has an error message only where Kafka's has, and the same one; others go to the log.
"""

import asyncio
import struct
from collections.abc import Awaitable, Generator, Iterator
from functools import partial
from typing import NamedTuple

from moldau.broker.records.cold_reads import ATTEMPTS_MAX, changes_too_fast
from moldau.broker.records.leader_hints import put_leader_hints
from moldau.broker.records.produce_refusals import (
    as_produce_error,
    put_refusal,
    put_refused_append,
    several_producers,
    without_transactional_id,
)
from moldau.broker.records.produced_records import BUFFERS, keep_records, records_bytes, writable
from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import RequestContext, Staged
from moldau.core.controller.topics.topic_names import INTERNAL_TOPICS
from moldau.core.partition.leader import ACKS_ALL
from moldau.net.frame_reader import SCRATCH_BYTES
from moldau.net.slices import Slices, others_first
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.protocol.records.batches import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    PRODUCER_ID_OFFSET,
    TRANSACTIONAL_FLAG,
)
from moldau.protocol.records.compression import Compression
from moldau.protocol.versions import PRODUCE_ADDS_PARTITIONS, PRODUCE_TOPIC_IDS
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.append import PreparedBatch, VerifiedBatch
from moldau.storage.producers.verification import Verification
from moldau.types import Buffer, Offset, ProducerEpoch, TopicPartition

ZSTD_FROM = 7
LEADER_HINTS_FROM = 10
WAIT_MS_MAX = 300_000
# Compressed batches up to this size are validated in the event loop: 64 KiB take under a
# millisecond, 1 MiB of gzip takes ten, and what 64 KiB may expand to takes a hundred.
HEAVY_BYTES = 64 << 10
LIGHT_OUTPUT_BYTES_MAX = 2 << 20

# The second byte of the attributes holds all flags that are in use.
_FLAGS_AT = ATTRIBUTES_OFFSET + 1
_UNCOMMON = COMPRESSION_MASK | TRANSACTIONAL_FLAG
_PRODUCER = struct.Struct(">qhi")
_MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # Not an enum: 100,000 may be compared.


class _Producer(NamedTuple):
    """The producer of a batch, from the batch's header."""

    producer_id: int
    epoch: ProducerEpoch
    sequence: int


class _Unverified(NamedTuple):
    partition: Partition
    records: Buffer
    answer: PartitionProduceResponse
    producer: _Producer


class _Heavy(NamedTuple):
    partition: Partition
    records: Buffer
    answer: PartitionProduceResponse
    verification: Verification | None = None
    cold: NotCachedError | None = None
    """The part of the log that must be loaded first."""


class _Appended(NamedTuple):
    partition: Partition
    last_offset: Offset
    answer: PartitionProduceResponse


def handle_produce(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Staged | Awaitable[ProduceResponse | Staged | None] | None:
    if ctx.is_large:
        return _append_many(ctx, request)
    appends = _Appends(ctx, request)
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        response = ProduceResponse(responses=[appends.topic(request.topic_data[0])])
    else:
        response = ProduceResponse()
        appending = _append_each(appends, response)
        for _ in appending:
            # Other tasks must run: a coroutine appends the rest.
            keep_records(request)
            return _append_rest(appends, appending, response)
    if appends.heavy or appends.unverified:
        # The connection's next request waits: it may carry the following batch.
        return _append_later(appends, response)
    return _answer(appends, response)


def _answer(appends: "_Appends", response: ProduceResponse) -> ProduceResponse | Staged | None:
    """Every batch is appended or refused."""
    ctx, request = appends.ctx, appends.request
    if request.acks == 0:
        # There is no response to report it: the client notices that the connection is closed.
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise MalformedRequestError(
                        f"Produce with acks=0 failed for {topic.name}-{partition.index}: "
                        f"{ErrorCode(partition.error_code).name}"
                    )
        return None
    if not appends.uncommitted:
        return _with_hints(ctx, response)
    return Staged(_Waiting(ctx, request, response, appends.uncommitted).answered)


def _append_each(appends: "_Appends", response: ProduceResponse) -> Generator[None, None, None]:
    """Yields whenever other tasks must run: after many batches, or a few that expand far."""
    slices = Slices()
    for topic in appends.request.topic_data:
        answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answers)
        for sent in topic.partition_data:
            answers.partition_responses.append(appends.partition(topic, sent))
            if slices.is_over:
                yield
                slices.begin()
        if not topic.partition_data and slices.is_over:
            yield
            slices.begin()


async def _append_many(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Staged | None:
    """Handles a request with thousands of partitions."""
    appends, response = await ctx.work(_Appends, ctx, request), ProduceResponse()
    return await _append_rest(appends, _append_each(appends, response), response)


async def _append_rest(
    appends: "_Appends", appending: Iterator[None], response: ProduceResponse
) -> ProduceResponse | Staged | None:
    await others_first()
    for _ in appending:
        await others_first()
    return await _append_later(appends, response)


async def _append_later(
    appends: "_Appends", response: ProduceResponse
) -> ProduceResponse | Staged | None:
    budget = appends.ctx.broker.budget
    copied_bytes = appends.copied_bytes
    budget.hold(copied_bytes)
    try:
        if appends.unverified:
            await appends.append_verified()
        for heavy in appends.heavy:
            await appends.append_heavy(heavy)
    finally:
        budget.hold(-copied_bytes)
    return _answer(appends, response)


class _Appends:
    """Stage one: appends the batches of a request."""

    __slots__ = (
        "_duplicates", "_is_kept", "_refusal", "copied_bytes", "ctx", "heavy", "request",
        "uncommitted", "unverified",
    )  # fmt: skip

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self.ctx = ctx
        self.request = request
        self._duplicates: set[tuple[str, bytes, int]] = set()
        self._refusal: KafkaError | None = None
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            self._duplicates = _duplicates(request)
            self._refusal = _refusal(request)
        self._is_kept: bool | None = None
        self.copied_bytes = 0
        """Size of the copies of batches that wait."""
        self.uncommitted: list[_Appended] = []
        self.heavy: list[_Heavy] = []
        """Batches that would block the event loop: threads check them, or read the disk."""
        self.unverified: list[_Unverified] = []
        """Batches that begin a transaction on their partitions."""

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        answers = [self.partition(topic, sent) for sent in topic.partition_data]
        return TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )

    def partition(
        self, topic: TopicProduceData, sent: PartitionProduceData
    ) -> PartitionProduceResponse:
        name: str | None = topic.name
        if self.ctx.version >= PRODUCE_TOPIC_IDS:
            name = self.ctx.broker.image.topic_name(topic.topic_id)
        answer = PartitionProduceResponse(index=sent.index, base_offset=-1)
        try:
            self._check(name, topic, sent)
            self._append(name or "", sent, answer)
        except KafkaError as error:
            put_refusal(answer, error)
        return answer

    def _check(self, name: str | None, topic: TopicProduceData, sent: PartitionProduceData) -> None:
        """Validates the request. The log validates the batch."""
        if self._refusal is not None:
            raise self._refusal
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        if self._duplicates and (topic.name, topic.topic_id, sent.index) in self._duplicates:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is in the request twice")
        if not ACKS_ALL <= self.request.acks <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self.request.acks}")
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients cannot write to {name}")

    def _append(
        self, name: str, sent: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        replicas = self.ctx.broker.replicas
        partition = replicas.get(name, sent.index) or replicas.lookup(name, sent.index)
        records = sent.records
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the request carries no batch")
        assert isinstance(records, BUFFERS)
        flags = records[_FLAGS_AT] if len(records) > _FLAGS_AT else 0
        if flags & _UNCOMMON:
            _check_flags(flags, self.request.transactional_id, self.ctx.version)
            if flags & TRANSACTIONAL_FLAG:
                producer = _producer(records)
                if producer is not None and not _is_open(partition, producer):
                    self.unverified.append(
                        _Unverified(partition, self._kept(records), answer, producer)
                    )
                    return
        try:
            if flags & COMPRESSION_MASK or len(records) > HEAVY_BYTES:
                self._append_slow(partition, records, answer)
            else:
                self._append_to(partition, records, answer)
        except KafkaError as error:
            put_refused_append(answer, error, partition)
        except NotCachedError as cold:
            self.heavy.append(_Heavy(partition, self._kept(records), answer, cold=cold))

    def _append_slow(
        self,
        partition: Partition,
        records: Buffer,
        answer: PartitionProduceResponse,
        verification: Verification | None = None,
    ) -> None:
        """Appends at once unless the batch is large or expands far."""
        is_compressed = bool(records[_FLAGS_AT] & COMPRESSION_MASK)
        cold: NotCachedError | None = None
        is_heavy = len(records) > HEAVY_BYTES and (is_compressed or not partition.keeps_codecs)
        if not is_heavy:
            try:
                self._append_to(partition, records, answer, verification)
            except KafkaError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE or not is_compressed:
                    raise
                is_heavy = True
            except NotCachedError as error:
                cold, is_heavy = error, True
        if is_heavy:
            self.heavy.append(_Heavy(partition, self._kept(records), answer, verification, cold))

    def _kept(self, records: Buffer) -> Buffer:
        """Makes records valid beyond the handler's synchronous part. They are already if the
        request has its own buffer: a waiting batch is copied when its turn comes, if at all.
        """
        if self._is_kept is None:
            self._is_kept = self.ctx.is_large or records_bytes(self.request) > SCRATCH_BYTES
        if self._is_kept or isinstance(records, bytearray):
            return records
        self.copied_bytes += len(records)
        return bytearray(records)

    async def append_heavy(self, heavy: _Heavy) -> None:
        try:
            broker, partition = self.ctx.broker, heavy.partition
            prepared = await partition.prepare(writable(heavy.records), broker.workers)
            cold = heavy.cold
            for _ in range(ATTEMPTS_MAX):
                if cold is not None:
                    await broker.replicas.cold_reads.load(partition.log, cold)
                try:
                    return self._append_to(partition, prepared, heavy.answer, heavy.verification)
                except NotCachedError as error:
                    cold = error
            raise changes_too_fast(partition.log.topic_partition)
        except KafkaError as error:
            put_refused_append(heavy.answer, error, heavy.partition)

    async def append_verified(self) -> None:
        """Appends what the coordinator has verified; `_refusal` ensures a single producer."""
        transactional_id = self.request.transactional_id
        assert transactional_id is not None, "_check_flags refuses a batch without one"
        adds = self.ctx.version >= PRODUCE_ADDS_PARTITIONS
        verifications = await self.ctx.broker.verification.begin(
            transactional_id,
            self.unverified[0].producer[:2],
            {each.partition: each.producer.sequence for each in self.unverified},
            adds=adds,
        )
        slices = Slices()
        for partition, kept, answer, _ in self.unverified:
            verification = verifications[partition]
            if isinstance(verification, KafkaError):
                put_refusal(answer, as_produce_error(verification, self.ctx.version))
                continue
            try:
                self._append_slow(partition, writable(kept), answer, verification)
            except KafkaError as error:
                put_refused_append(answer, error, partition)
            if slices.is_over:
                await slices.next()

    def _append_to(
        self,
        partition: Partition,
        records: Buffer | PreparedBatch,
        answer: PartitionProduceResponse,
        verification: Verification | None = None,
    ) -> None:
        acks, log = self.request.acks, partition.log
        appended_before, is_first = log.appended_bytes, not log.awaits_flush
        result = partition.append(
            records if verification is None else VerifiedBatch(records, verification),
            required_acks=acks,
            output_bytes_max=LIGHT_OUTPUT_BYTES_MAX,
        )
        if log.awaits_flush:
            count = log.appended_bytes - appended_before
            rounds = self.ctx.broker.replicas.flush_rounds
            rounds.appended(self.ctx.peer, log, count, is_first=is_first)
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.append_time_ms
        answer.log_start_offset = result.log_start_offset
        waits = acks == ACKS_ALL or (acks == 1 and log.owes_flush)
        if waits and not partition.is_committed(result.last_offset):
            self.uncommitted.append(_Appended(partition, result.last_offset, answer))


class _Waiting:
    """Stage two: waits until the appended batches are committed."""

    __slots__ = ("_bucket", "_ctx", "_pending", "_response", "answered")

    def __init__(
        self,
        ctx: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        appended: list[_Appended],
    ) -> None:
        self.answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        self._ctx = ctx
        self._response = response
        self._pending = dict(enumerate(appended))
        wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
        self._bucket = ctx.broker.deadlines.add(wait_ms, self._time_is_up)
        for index, each in enumerate(appended):
            each.partition.on_committed(Offset(each.last_offset), partial(self._committed, index))

    def _committed(self, index: int, error: KafkaError | None) -> None:
        appended = self._pending.pop(index, None)
        if appended is None:
            return
        if error is not None:
            put_refusal(appended.answer, error)
        if not self._pending:
            self._bucket.pop(self._time_is_up, None)
            self._answer()

    def _time_is_up(self) -> None:
        for appended in self._pending.values():
            put_refusal(
                appended.answer,
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, "appended, but not committed in time"),
            )
        self._pending.clear()
        self._answer()

    def _answer(self) -> None:
        # Cancelled if the client is gone.
        if not self.answered.done():
            self.answered.set_result(_with_hints(self._ctx, self._response))


def _duplicates(request: ProduceRequest) -> set[tuple[str, bytes, int]]:
    """Partitions that are named more than once: the order of their batches would be undefined."""
    if len(request.topic_data) == 1:
        data = request.topic_data[0].partition_data
        if len({each.index for each in data}) == len(data):
            # The usual case, and the cheapest to check.
            return set()
    seen: set[tuple[str, bytes, int]] = set()
    duplicates: set[tuple[str, bytes, int]] = set()
    for topic in request.topic_data:
        for partition in topic.partition_data:
            key = (topic.name, topic.topic_id, partition.index)
            (duplicates if key in seen else seen).add(key)
    return duplicates


def _refusal(request: ProduceRequest) -> KafkaError | None:
    """The error of a request for several partitions as a whole."""
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for sent in topic.partition_data:
            records = sent.records
            if (
                isinstance(records, BUFFERS)
                and len(records) > _FLAGS_AT
                and records[_FLAGS_AT] & TRANSACTIONAL_FLAG
            ):
                if request.transactional_id is None:
                    return without_transactional_id()
                producer = _producer(records)
                if producer is not None:
                    producers.add(producer[:2])
    if len(producers) > 1:
        return several_producers()
    return None


def _producer(records: Buffer) -> _Producer | None:
    """Returns None for a batch without a producer, or without a whole header."""
    if len(records) < BATCH_HEADER_SIZE:
        return None
    producer = _Producer(*_PRODUCER.unpack_from(records, PRODUCER_ID_OFFSET))
    return producer if producer.producer_id >= 0 else None


def _is_open(partition: Partition, producer: _Producer) -> bool:
    return partition.log.producers.has_open_transaction(producer.producer_id, producer.epoch)


def _check_flags(flags: int, transactional_id: str | None, version: int) -> None:
    """Checks the batch's flags against what the request allows."""
    if flags & COMPRESSION_MASK == Compression.ZSTD and version < ZSTD_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
        )
    if flags & TRANSACTIONAL_FLAG and transactional_id is None:
        raise without_transactional_id()


def _with_hints(ctx: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Adds the new leaders of partitions that moved, and their endpoints."""
    if ctx.version < LEADER_HINTS_FROM:
        return response
    image = ctx.broker.image
    moved = [
        (TopicPartition(topic.name or image.topic_name(topic.topic_id) or "", answer.index), answer)
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code == _MOVED
    ]
    response.node_endpoints = put_leader_hints(ctx, moved, LeaderIdAndEpoch, NodeEndpoint)
    return response
