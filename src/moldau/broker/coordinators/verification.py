"""Verifies with a transaction's coordinator that partitions belong to the transaction, before
records are written to them that no coordinator would ever end (KIP-890). Each broker gets one
request at a time, with all queries that have gathered since the previous one.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.broker.replicas.partition import Partition
from moldau.core.controller.topics.topic_names import TRANSACTION_STATE
from moldau.core.coordinator.effects import Writer
from moldau.core.coordinator.placement import partition_for
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.storage.producers.verification import Verification
from moldau.types import NO_LEADER, BrokerId, ProducerEpoch, TopicPartition

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.cluster.peers import Peers
    from moldau.broker.server.context import ConfigHolder
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks

Codes = dict[TopicPartition, ErrorCode]

# The coordinator's errors for its own clients, and their equivalents for writers.
_FOR_WRITERS = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}


@frozen
class VerifiedWriter(Writer):
    verification: Verification | None
    """The token that lets its first records into the log; None if its transaction is open there."""


@dataclass(slots=True, eq=False)
class _Query:
    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch
    partitions: Collection[TopicPartition]
    adds: bool
    answer: "asyncio.Future[Codes]"

    def complete_all(self, code: ErrorCode) -> None:
        self.complete(dict.fromkeys(self.partitions, code))

    def complete(self, codes: Codes) -> None:
        # Cancelled if the client is gone.
        if not self.answer.done():
            self.answer.set_result(codes)


class TransactionVerification:
    def __init__(
        self,
        peers: "Peers",
        feed: "MetadataFeed",
        settings: "ConfigHolder",
        clock: "Clock",
        tasks: "Tasks",
    ) -> None:
        self._peers = peers
        self._feed = feed
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[BrokerId, list[_Query]] = {}
        """Queries for the next request, by broker. A broker is in it while a request to it is
        running.
        """

    async def begin(
        self,
        transactional_id: str,
        producer: tuple[int, ProducerEpoch],
        first_sequences: Mapping[Partition, int],
        *,
        adds: bool,
    ) -> dict[Partition, Verification | KafkaError | None]:
        """Returns, for each partition, the verification with which an append may open a transaction
        of `producer` (id and epoch) there: None if it needs none, an error if it is refused.
        `adds`: partitions that are not in the transaction are added to it.
        """
        config = self._settings.current
        if not (adds or config.transaction_partition_verification_enable):
            return dict.fromkeys(first_sequences)
        patience_ms = min(
            config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
        )
        give_up_ms = self._clock.mono_ms() + patience_ms
        while True:
            verifications = _begin(producer, first_sequences, adds=adds)
            waiting = [p for p, begun in verifications.items() if isinstance(begun, Verification)]
            if not waiting:
                return verifications
            names = [partition.topic_partition for partition in waiting]
            codes = await self.verify(transactional_id, *producer, names, adds=adds)
            is_busy = adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_busy or self._clock.mono_ms() >= give_up_ms:
                break
            # The last transaction is still being completed: a retry here is faster than one by the
            # client.
            await self._clock.sleep(config.add_partitions_to_txn_retry_backoff_ms)
        for partition in waiting:
            code = codes[partition.topic_partition]
            if code is not ErrorCode.NONE:
                verifications[partition] = KafkaError(
                    code, "refused by the transaction's coordinator"
                )
        return verifications

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        """The coordinator's error code for each of the partitions."""
        broker_id = self._coordinator_of(transactional_id)
        if broker_id is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        query = _Query(transactional_id, producer_id, epoch, partitions, adds, answer)
        if broker_id in self._waiting:
            self._waiting[broker_id].append(query)
        else:
            self._waiting[broker_id] = [query]
            _ = self._tasks.start(
                self._send_queries(broker_id), f"verify transactions with {broker_id}"
            )
        return await answer

    def _coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """The coordinator's broker, if it is alive."""
        image = self._feed.image
        topic = image.topic(TRANSACTION_STATE)
        if topic is None:
            return None
        partition = topic.partitions.get(partition_for(transactional_id, len(topic.partitions)))
        if partition is None or partition.leader == NO_LEADER:
            return None
        broker = image.brokers.get(partition.leader)
        return None if broker is None or broker.is_fenced else partition.leader

    async def _send_queries(self, broker_id: BrokerId) -> None:
        sent: list[_Query] = []
        try:
            while self._waiting[broker_id]:
                sent, self._waiting[broker_id] = _split_by_id(self._waiting[broker_id])
                await self._send_request(broker_id, sent)
        finally:
            for query in sent + self._waiting.pop(broker_id):
                query.complete_all(ErrorCode.NETWORK_EXCEPTION)

    async def _send_request(self, broker_id: BrokerId, queries: list[_Query]) -> None:
        try:
            response = await self._peers.send(broker_id, _request(queries))
        except KafkaError:
            # There was no response; error codes of other kinds are for the coordinator's own
            # clients.
            code = ErrorCode.NETWORK_EXCEPTION
        else:
            assert isinstance(response, AddPartitionsToTxnResponse)
            code = error_code(response.error_code)
            if code is ErrorCode.NONE:
                _complete_each(queries, response)
                return
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The coordinator refused this broker, not its client.
                code = ErrorCode.INVALID_TXN_STATE
        for query in queries:
            query.complete_all(code)


def _begin(
    producer: tuple[int, ProducerEpoch], first_sequences: Mapping[Partition, int], *, adds: bool
) -> dict[Partition, Verification | KafkaError | None]:
    verifications: dict[Partition, Verification | KafkaError | None] = {}
    for partition, sequence in first_sequences.items():
        try:
            verifications[partition] = partition.begin_verification(*producer, sequence, adds=adds)
        except KafkaError as error:
            # Without its traceback, which refers back to this dictionary.
            verifications[partition] = error.with_traceback(None)
    return verifications


def _split_by_id(queries: list[_Query]) -> tuple[list[_Query], list[_Query]]:
    """A request names a transactional id once: further queries about it wait for the next."""
    first: dict[str, _Query] = {}
    later = [q for q in queries if first.setdefault(q.transactional_id, q) is not q]
    return list(first.values()), later


def _request(queries: list[_Query]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=query.transactional_id,
                producer_id=query.producer_id,
                producer_epoch=query.epoch,
                verify_only=not query.adds,
                topics=_topics(query.partitions),
            )
            for query in queries
        ]
    )


def _topics(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return [
        AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()
    ]


def _complete_each(queries: list[_Query], response: AddPartitionsToTxnResponse) -> None:
    codes_by_id: dict[str, Codes] = {}
    for result in response.results_by_transaction:
        codes = codes_by_id.setdefault(result.transactional_id, {})
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                code = error_code(each.partition_error_code)
                name = TopicPartition(topic.name, each.partition_index)
                codes[name] = _FOR_WRITERS.get(code, code)
    for query in queries:
        codes = codes_by_id.get(query.transactional_id, {})
        query.complete(
            {name: codes.get(name, ErrorCode.NETWORK_EXCEPTION) for name in query.partitions}
        )
