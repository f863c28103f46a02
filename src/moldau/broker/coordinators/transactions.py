"""The transaction coordinator of this node: a shard for each partition of __transaction_state that
it leads. A request for a transactional id goes to the shard of its partition, or is refused
here.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from moldau.broker.coordinators.markers import MarkersToSend
from moldau.broker.coordinators.runtime import CoordinatorRuntime, ShardKind
from moldau.broker.coordinators.shard_host import HostOptions, HostServices, HostState, ShardHost
from moldau.broker.server.deadlines import Deadlines
from moldau.broker.server.log_texts import few_of, short
from moldau.core.controller.topics.topic_names import TRANSACTION_STATE
from moldau.core.transactions.requests import AddPartitions, Completed, End, Init, MarkersNeeded
from moldau.core.transactions.settings import TransactionSettings
from moldau.core.transactions.states import PREPARED
from moldau.core.transactions.transaction import NO_TIMEOUT_MS, ProducerIdAndEpoch
from moldau.core.transactions.transaction_records import decode_transaction_record
from moldau.core.transactions.transaction_shard import TransactionShard
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.records.compression import Compression
from moldau.protocol.versions import BUMPS_EPOCH_FROM, END_TXN_BUMPS_EPOCH, code_for_version
from moldau.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, TopicPartition

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.cluster.producer_ids import ProducerIds
    from moldau.broker.coordinators.markers import TransactionMarkers
    from moldau.broker.replicas.replicas import Replicas
    from moldau.broker.server.context import ConfigHolder
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Clock, Timer

_log = logging.getLogger(__name__)

TransactionHost = ShardHost[TransactionShard]

FEATURE = "transaction.version"


class TransactionCoordinator:
    def __init__(
        self,
        replicas: "Replicas",
        clock: "Clock",
        settings: "ConfigHolder",
        feed: "MetadataFeed",
        producer_ids: "ProducerIds",
        markers: "TransactionMarkers",
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._feed = feed
        self._producer_ids = producer_ids
        self._markers = markers
        kind = ShardKind(
            topic=TRANSACTION_STATE,
            partition_count=lambda: settings.current.transaction_state_log_num_partitions,
            new_shard=lambda: TransactionShard(self._current_settings),
            decode=decode_transaction_record,
            survives_epochs=False,
            unloaded=markers.cancel,
        )
        services = HostServices(
            clock, Deadlines(clock), replicas.cold_reads, self._options, self._requested
        )
        self._runtime = CoordinatorRuntime(kind, replicas, feed, services)
        self._tasks = Tasks(are_measured=True)
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        """Requests that would begin the next transaction of an id while its last one is being
        completed.
        """
        self._timer: Timer | None = None
        self._config: BrokerConfig | None = None
        self._core_settings = TransactionSettings()

    def start(self) -> None:
        """Loads the shards of partitions led now, in the background, and follows later changes."""
        self._runtime.start()
        self._schedule_overdue_check()

    async def stop(self) -> None:
        """Called before the replicas stop: waiting clients receive an error and look for another
        coordinator.
        """
        await self._tasks.close()
        if self._timer is not None:
            self._timer.cancel()
        await self._runtime.stop()

    async def wait_loaded(self) -> None:
        """Waits until every shard led now is loaded."""
        await self._runtime.wait_loaded()

    # Settings

    @property
    def transaction_version(self) -> int:
        """The transaction.version that the cluster has agreed on."""
        return self._feed.image.features.get(FEATURE, 0)

    def _current_settings(self) -> TransactionSettings:
        config, version = self._settings.current, self.transaction_version
        if config is not self._config or version != self._core_settings.transaction_version:
            self._config = config
            self._core_settings = _core_settings(config, version)
        return self._core_settings

    def _options(self) -> HostOptions:
        return HostOptions(self._settings.current.request_timeout_ms, Compression.NONE, 0)

    # The state, for list and describe requests

    @property
    def is_loading(self) -> bool:
        return self._runtime.is_loading

    def shards(self) -> Iterator[TransactionShard]:
        """The shards that are loaded."""
        return (host.shard for host in self._runtime.active())

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._runtime.of_key(transactional_id).shard

    def partition_for(self, transactional_id: str) -> int:
        return self._runtime.partition_for(transactional_id)

    # Requests of producers

    async def init_producer_id(
        self, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        try:
            producer = await self._init(request)
        except KafkaError as error:
            code = code_for_version(error.code, ApiKey.INIT_PRODUCER_ID, version)
            return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
        return InitProducerIdResponse(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        )

    async def _init(self, request: InitProducerIdRequest) -> ProducerIdAndEpoch:
        expected = _expected(request)
        transactional_id = request.transactional_id
        if transactional_id is None:
            return ProducerIdAndEpoch(await self._producer_ids.next(), ProducerEpoch(0))
        _check_init(request, self._current_settings())
        init = Init(
            transactional_id=transactional_id,
            timeout_ms=NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms,
            expected=expected,
        )
        await self._wait_completed(transactional_id)
        host, fresh_id = await self._host_and_id(transactional_id)
        producer: ProducerIdAndEpoch = await host.submit(
            lambda ticket, turn: host.shard.init(init, fresh_id, ticket, turn), depends=False
        )
        return producer

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        transaction_version: int,
    ) -> ErrorCode:
        add = AddPartitions(
            transactional_id=transactional_id,
            producer=ProducerIdAndEpoch(producer_id, epoch),
            partitions=partitions,
            client_version=transaction_version,
        )
        try:
            _check_id(transactional_id)
            await self._wait_completed(transactional_id)
            host = self._runtime.of_key(transactional_id)
            await host.submit(
                lambda ticket, turn: host.shard.add_partitions(add, ticket, turn), depends=False
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        producer = ProducerIdAndEpoch(producer_id, epoch)
        try:
            _check_id(transactional_id)
            shard = self._runtime.of_key(transactional_id).shard
            return shard.verify_partitions(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    async def end_transaction(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """Answers when the decision is in the log; the markers follow."""
        end = End(
            transactional_id=request.transactional_id,
            producer=ProducerIdAndEpoch(request.producer_id, ProducerEpoch(request.producer_epoch)),
            commits=request.committed,
            client_version=BUMPS_EPOCH_FROM if version >= END_TXN_BUMPS_EPOCH else 0,
        )
        try:
            _check_id(request.transactional_id)
            host, fresh_id = await self._host_and_id(request.transactional_id)
            producer: ProducerIdAndEpoch = await host.submit(
                lambda ticket, turn: host.shard.end(end, fresh_id, ticket, turn), depends=False
            )
        except KafkaError as error:
            code = code_for_version(error.code, ApiKey.END_TXN, version)
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        )

    async def _wait_completed(self, transactional_id: str) -> None:
        """Waits a short time until the open transaction is completed, which usually takes a few
        milliseconds: a refused client would retry much later. A transaction that takes longer is
        stuck, and must not hold up others in the same request.
        """
        current = self.shard_of(transactional_id).transactions.get(transactional_id)
        if current is None or current.state not in PREPARED:
            return
        patience_ms = self._settings.current.add_partitions_to_txn_retry_backoff_max_ms
        left_ms = min(current.update_ms - self._clock.wall_ms(), 0) + patience_ms
        if left_ms <= 0:
            return
        completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append(completed)
        try:
            async with self._clock.timeout(left_ms):
                await completed
        except TimeoutError:
            pass
        finally:
            waiting.remove(completed)
            if not waiting and self._waiting.get(transactional_id) is waiting:
                del self._waiting[transactional_id]

    async def _host_and_id(self, transactional_id: str) -> tuple[TransactionHost, int | None]:
        """The shard's host, with a new producer id if one may be needed: a decision cannot wait for
        it.
        """
        host = self._runtime.of_key(transactional_id)
        if not host.shard.needs_producer_id(transactional_id):
            return host, None
        fresh_id = await self._producer_ids.next()
        return self._runtime.of_key(transactional_id), fresh_id

    # Requests of shards

    def _requested(self, host: ShardHost[Any], what: MarkersNeeded | Completed) -> None:
        if isinstance(what, Completed):
            for waiting in self._waiting.pop(what.transactional_id, ()):
                if not waiting.done():
                    waiting.set_result(None)
            return
        markers = MarkersToSend(
            transactional_id=what.transactional_id,
            producer_id=what.producer.producer_id,
            producer_epoch=what.producer.producer_epoch,
            coordinator_epoch=host.partition.leader_epoch,
            commits=what.commits,
            partitions=what.partitions,
            transaction_version=what.transaction_version,
        )

        def on_done(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                # A later coordinator has taken over. It completes the open transactions.
                name = short(what.transactional_id)
                _log.warning("%s is completed by its new coordinator: %s", name, code.name)
            elif host.state is HostState.ACTIVE:
                host.run(
                    lambda turn: host.shard.markers_written(what.transactional_id, turn),
                    depends=False,
                )

        self._markers.send(markers, on_done)

    # Transactions that take too long

    def _schedule_overdue_check(self) -> None:
        interval_ms = (
            self._settings.current.transaction_abort_timed_out_transaction_cleanup_interval_ms
        )
        self._timer = self._clock.call_later(interval_ms, self._check_overdue)

    def _check_overdue(self) -> None:
        _ = self._tasks.start(self._abort_overdue(), "abort-overdue-transactions")

    async def _abort_overdue(self) -> None:
        aborted: list[str] = []
        refused: dict[str, KafkaError] = {}
        try:
            for host in list(self._runtime.active()):
                for transactional_id in host.shard.overdue(self._clock.wall_ms()):
                    try:
                        await self._abort_one(host, transactional_id)
                        aborted.append(transactional_id)
                    except KafkaError as error:
                        refused[transactional_id] = error
                    # There may be many; clients come first.
                    await asyncio.sleep(0)
        finally:
            # One client may leave thousands of transactions open: not a line for each.
            if aborted:
                _log.info(
                    "transactions exceeded their timeout and are aborted: %s", few_of(aborted)
                )
            if refused:
                names, reason = list(refused), next(iter(refused.values()))
                _log.warning("transactions are not aborted yet: %s: %s", few_of(names), reason)
            self._schedule_overdue_check()

    async def _abort_one(self, host: TransactionHost, transactional_id: str) -> None:
        fresh_id = None
        if host.shard.needs_producer_id(transactional_id):
            fresh_id = await self._producer_ids.next()
        if host.state is HostState.ACTIVE:
            host.run(
                lambda turn: host.shard.abort_overdue(transactional_id, fresh_id, turn),
                depends=False,
            )


def _core_settings(config: "BrokerConfig", transaction_version: int) -> TransactionSettings:
    return TransactionSettings(
        transaction_version=transaction_version,
        timeout_max_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        expiry_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        may_commit_in_two_phases=config.transaction_two_phase_commit_enable,
    )


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")


def _check_init(request: InitProducerIdRequest, settings: TransactionSettings) -> None:
    _check_id(request.transactional_id or "")
    if request.enable2_pc and not settings.may_commit_in_two_phases:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "prepared transactions are not supported yet"
        )
    if request.enable2_pc:
        return
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a producer id without an epoch, or an epoch without a producer id",
        )
    return (
        ProducerIdAndEpoch(request.producer_id, ProducerEpoch(request.producer_epoch))
        if has_id
        else None
    )
