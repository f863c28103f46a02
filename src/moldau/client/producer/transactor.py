"""Sends the requests of a transaction to its coordinators, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.client.consumer.arguments import offsets_of
from moldau.client.errors import ClientError, ClientTimeoutError, check
from moldau.client.producer.engine import ProducerEngine
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.core.producer.partition_queue import NO_PRODUCER, ProducerIdentity
from moldau.core.producer.transaction_states import TRANSACTION_VERSION_FEATURE, Phase, Transactions
from moldau.net.request_channel import ChannelError
from moldau.protocol.enums import CoordinatorType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.protocol.versions import (
    ADD_PARTITIONS_BY_BROKERS,
    BUMPS_EPOCH_FROM,
    END_TXN_BUMPS_EPOCH,
    TXN_OFFSET_COMMIT_ADDS_PARTITIONS,
)
from moldau.types import INT16_MAX, ProducerEpoch, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster.cluster import Cluster

Result = TypeVar("Result")
_NO_IDENTITY = (-1, -1)
# The last version for clients; newer ones are for brokers.
_ADD_PARTITIONS_VERSION_MAX = ADD_PARTITIONS_BY_BROKERS - 1
_KEEP_EPOCH_VERSION = 3
# Completing the previous transaction takes a moment.
_CONCURRENT_PAUSE_MS = 20


class Transactor:
    def __init__(
        self, engine: ProducerEngine, transactional_id: str, timeout_ms: int, max_block_ms: float
    ) -> None:
        self.state = Transactions()
        self._engine = engine
        self._cluster: Cluster = engine.cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        engine.sending.may_write = self._may_write
        engine.on_failure = self._failed
        engine.appender.is_closed = True

    def _failed(self, error: Exception) -> None:
        if self.state.phase is not Phase.ABORTING:
            failure = self.state.failed(error)
            self._engine.appender.is_closed = True
            # Unsent records will never be sent, so their deliveries fail now.
            asyncio.get_running_loop().call_soon(self._engine.drop_unsent, failure)

    def _may_write(self, partition: TopicPartition) -> bool:
        may = self.state.may_write(partition)
        if not may and self.state.pending:
            self._engine.once("partitions", self._add_partitions())
        return may

    @property
    def is_new(self) -> bool:
        return self.state.phase is Phase.NEW

    @property
    def is_open(self) -> bool:
        return self.state.phase in {Phase.OPEN, Phase.MUST_ABORT}

    @property
    def must_abort(self) -> bool:
        return self.state.phase is Phase.MUST_ABORT

    @property
    def must_stop(self) -> bool:
        return self.state.phase is Phase.MUST_STOP

    # Methods of the producer.

    async def init(self) -> None:
        if self.state.phase is not Phase.NEW:
            if self.state.error is not None:
                raise self.state.error
            raise ClientError("init_transactions() was called already")
        identity = await self._with_retries(
            lambda: self._request_identity(NO_PRODUCER), "init_transactions"
        )
        self._engine.sending.identified(identity)
        self.state.initialized(is_second_protocol=await self._second_protocol())

    async def adopt(self, identity: ProducerIdentity) -> None:
        """Joins a transaction that another process began and will end."""
        if self.is_new:
            self.state.initialized(is_second_protocol=await self._second_protocol())
        self._engine.sending.identified(identity)
        self.begin()

    def release(self) -> None:
        """Stops writing in an adopted transaction, which the other process ends."""
        self.state.check_open("release a transaction")
        self._engine.appender.is_closed = True
        self.state.ended()

    def share(self) -> ProducerIdentity:
        """Returns the identity with which other processes write in the open transaction. The end of
        the transaction is then always sent to the coordinator, since this process does not know
        whether they wrote.
        """
        self.state.check_open("share a transaction")
        self.state.offsets_added()
        # Their sequence numbers start again with the next transaction.
        self.state.needs_new_epoch = not self.state.is_second_protocol
        identity = self._engine.sending.identity
        assert identity is not None
        return identity

    def begin(self) -> None:
        self.state.begin()
        self._engine.appender.is_closed = False

    async def commit(self) -> None:
        """Commits. After a timeout it can be called again."""
        if self.state.phase is not Phase.COMMITTING:
            self.state.begin_commit()
        self._engine.appender.is_closed = True
        await self._engine.flush()
        if self.state.error is not None:
            raise self.state.error
        await self._end(is_commit=True)

    async def abort(self) -> None:
        if self.state.phase is not Phase.ABORTING:
            self.state.begin_abort()
        self._engine.appender.is_closed = True
        aborted = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        self._engine.drop_unsent(aborted)
        await self._engine.flush()
        await self._end(is_commit=False)

    async def send_offsets(self, offsets: Any, group: Any) -> None:
        """`offsets`: partition -> offset, or OffsetAndMetadata. `group`: a group id, or a
        consumer's group_metadata().
        """
        self.state.check_open("send offsets")
        wanted = offsets_of(offsets)
        group_id = group if isinstance(group, str) else getattr(group, "group_id", None)
        if not isinstance(group_id, str) or not group_id:
            raise ClientError(f"{group!r} is not a group; give its id, or group_metadata()")
        if not wanted:
            return
        try:
            if not self.state.is_second_protocol:
                await self._with_retries(lambda: self._add_offsets(group_id), "send_offsets", False)
            self.state.offsets_added()
            await self._with_retries(
                lambda: self._commit_offsets(wanted, group), "send_offsets", False
            )
        except KafkaError as error:
            self._failed(error)
            raise self.state.error or error from None

    # Requests.

    async def _end(self, *, is_commit: bool) -> None:
        fresh: ProducerIdentity | None = None
        if self.state.must_be_ended:
            fresh = await self._with_retries(
                lambda: self._end_once(is_commit), "the transaction's end"
            )
        identity = self._engine.sending.identity
        assert identity is not None
        if fresh is None and self.state.needs_new_epoch:
            fresh = await self._with_retries(
                lambda: self._request_identity(identity), "a new epoch"
            )
        if fresh is not None:
            self._engine.sending.identified(fresh)
        self.state.ended()

    async def _end_once(self, is_commit: bool) -> ProducerIdentity | None:
        identity = self._engine.sending.identity
        assert identity is not None
        newest = END_TXN_BUMPS_EPOCH - (0 if self.state.is_second_protocol else 1)
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        answer = await self._send(request, EndTxnResponse, newest=newest)
        check(answer.error_code, "the transaction's end")
        if self.state.is_second_protocol and answer.producer_id >= 0:
            return ProducerIdentity(answer.producer_id, ProducerEpoch(answer.producer_epoch))
        return None

    async def _request_identity(self, before: ProducerIdentity) -> ProducerIdentity:
        node = await self._cluster.coordinator(self._id, CoordinatorType.TRANSACTION)
        connection = await self._cluster.connection(node)
        is_old = connection.newest_of(InitProducerIdRequest) < _KEEP_EPOCH_VERSION
        producer_id, epoch = _NO_IDENTITY if is_old else before
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = await self._cluster.send(node, request, InitProducerIdResponse, newest=5)
        check(answer.error_code, f"transactional id '{self._id}'")
        return ProducerIdentity(answer.producer_id, ProducerEpoch(answer.producer_epoch))

    async def _add_partitions(self) -> None:
        wanted = self.state.pending
        try:
            await self._with_retries(lambda: self._add_once(wanted), "adding partitions", False)
        except MoldauError as error:
            failure = self.state.failed(error)
            self._engine.appender.is_closed = True
            self._engine.drop_unsent(failure)

    async def _add_once(self, wanted: set[TopicPartition]) -> None:
        if self.state.phase not in {Phase.OPEN, Phase.COMMITTING}:
            return
        identity = self._engine.sending.identity
        assert identity is not None
        topics: dict[str, list[int]] = {}
        for partition in wanted:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        answer = await self._send(
            request, AddPartitionsToTxnResponse, newest=_ADD_PARTITIONS_VERSION_MAX
        )
        rows = [
            (TopicPartition(topic.name, row.partition_index), row.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        for partition, code in rows:
            if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                check(code, f"adding {partition} to the transaction")
        self.state.added({partition for partition, _ in rows})

    async def _add_offsets(self, group_id: str) -> None:
        identity = self._engine.sending.identity
        assert identity is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        answer = await self._send(request, AddOffsetsToTxnResponse)
        check(answer.error_code, f"adding the offsets of '{group_id}'")

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any
    ) -> None:
        identity = self._engine.sending.identity
        assert identity is not None
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (name, number), at in offsets.items():
            row = TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
            topics.setdefault(name, []).append(row)
        group_id = group if isinstance(group, str) else group.group_id
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=_or(getattr(group, "generation_id", None), -1),
            member_id=getattr(group, "member_id", None) or "",
            group_instance_id=getattr(group, "group_instance_id", None),
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )
        newest = TXN_OFFSET_COMMIT_ADDS_PARTITIONS - (0 if self.state.is_second_protocol else 1)
        node = await self._cluster.coordinator(group_id)
        answer = await self._cluster.send(node, request, TxnOffsetCommitResponse, newest=newest)
        for topic in answer.topics:
            for answered in topic.partitions:
                partition = TopicPartition(topic.name, answered.partition_index)
                check(answered.error_code, f"the offset of {partition} for '{group_id}'")

    async def _send(self, request: Any, answer_class: Any, *, newest: int = INT16_MAX) -> Any:
        node = await self._cluster.coordinator(self._id, CoordinatorType.TRANSACTION)
        return await self._cluster.send(node, request, answer_class, newest=newest)

    async def _second_protocol(self) -> bool:
        node = await self._cluster.coordinator(self._id, CoordinatorType.TRANSACTION)
        served = (await self._cluster.connection(node)).served
        return any(
            feature.name == TRANSACTION_VERSION_FEATURE
            and feature.max_version_level >= BUMPS_EPOCH_FROM
            for feature in served.finalized_features
        )

    async def _with_retries(
        self, attempt: Callable[[], Awaitable[Result]], what: str, is_final: bool = True
    ) -> Result:
        """Retries retriable errors, for max.block.ms at most. `is_final`: any other error of a
        broker fails the transaction.
        """
        clock = self._cluster.clock
        deadline_ms = clock.mono_ms() + self._max_block_ms
        failures = 0
        while True:
            try:
                async with clock.timeout(deadline_ms - clock.mono_ms()):
                    return await attempt()
            except TimeoutError as error:
                if isinstance(error, MoldauError):
                    raise
                raise ClientTimeoutError(
                    f"{what}: not done within max.block.ms; try again"
                ) from None
            except (KafkaError, ChannelError, ClientError) as error:
                failures += 1
                if not self._is_retriable(error):
                    mapped = _as_fenced(error)
                    if is_final and isinstance(mapped, KafkaError):
                        raise self.state.failed(mapped) from None
                    raise mapped from None
                pause_ms = self._cluster.pause_ms(failures)
                if isinstance(error, KafkaError) and error.code is _CONCURRENT:
                    pause_ms = _CONCURRENT_PAUSE_MS
                if clock.mono_ms() + pause_ms >= deadline_ms:
                    raise ClientTimeoutError(
                        f"{what}: not done within max.block.ms; last error: {error}"
                    ) from None
            self._cluster.forget()
            await clock.sleep(pause_ms)

    def _is_retriable(self, error: MoldauError) -> bool:
        """Whether to retry. Brokers may name a coordinator for a while after it has stopped."""
        is_away = isinstance(error, KafkaError) and error.code is ErrorCode.BROKER_NOT_AVAILABLE
        return is_away or self._cluster.is_retriable(error)


_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def _as_fenced(error: MoldauError) -> MoldauError:
    """Older coordinators report a fenced producer as INVALID_PRODUCER_EPOCH."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return KafkaError(ErrorCode.PRODUCER_FENCED, error.detail)
    return error


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
