"""Transactions: listing and describing them, the producers of partitions, and aborting transactions
that hang. A transaction hangs if it is open in a partition and no coordinator knows it there.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError, check
from moldau.protocol.enums import CoordinatorType
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from moldau.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from moldau.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.types import TopicPartition

NO_TIME = -1
ANY_DURATION = -1
# The limit of Kafka's tool for one request: describing a partition is expensive for the broker.
PARTITIONS_AT_ONCE = 500
# The first versions that carry these filters.
_DURATION_VERSION = 1
_PATTERN_VERSION = 2


class TransactionFilter(NamedTuple):
    """Selects the transactions to list. A field that keeps its default excludes nothing."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int = ANY_DURATION
    pattern: str | None = None
    """A regular expression that the whole transactional id must match."""


class ListedTransaction(NamedTuple):
    """A transactional id in the result of `Admin.list_transactions`."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    """A transactional id in the result of `Admin.describe_transactions`."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """None if no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction that have no end marker yet."""


class PartitionProducer(NamedTuple):
    """An active producer of a partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None
    """The first offset of its open transaction; None if none is open."""


async def list_transactions(
    cluster: Cluster, wanted: TransactionFilter | None = None
) -> tuple[list[ListedTransaction], list[str]]:
    """The transactional ids of all brokers, sorted, and the states of the filter that a broker does
    not know.
    """
    wanted = wanted or TransactionFilter()
    found: list[ListedTransaction] = []
    unknown: set[str] = set()
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    oldest = _DURATION_VERSION if wanted.longer_than_ms != ANY_DURATION else 0
    if wanted.pattern:
        oldest = _PATTERN_VERSION
    for node_id in await cluster.brokers():

        async def attempt(node_id: int = node_id) -> ListTransactionsResponse:
            answer = await cluster.send(node_id, request, ListTransactionsResponse, oldest=oldest)
            check(answer.error_code, f"listing the transactions of broker {node_id}")
            return answer

        answer = await cluster.with_retries(attempt)
        unknown.update(answer.unknown_state_filters)
        found += [
            ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state, node_id)
            for row in answer.transaction_states
        ]
    return sorted(found), sorted(unknown)


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, Transaction | None]:
    """None stands for an id that no coordinator knows."""
    return {name: await _describe(cluster, name) for name in dict.fromkeys(transactional_ids)}


async def _describe(cluster: Cluster, transactional_id: str) -> Transaction | None:
    async def attempt() -> Transaction | None:
        node_id = await cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await cluster.send(node_id, request, DescribeTransactionsResponse)
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        check(state.error_code, f"transactional id '{transactional_id}'")
        return _transaction(state, node_id)

    return await cluster.with_retries(attempt)


def _transaction(state: TransactionState, coordinator: int) -> Transaction:
    start_ms = state.transaction_start_time_ms
    return Transaction(
        state.transactional_id,
        coordinator,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        None if start_ms < 0 else start_ms,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in state.topics
                for number in topic.partitions
            )
        ),
    )


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], broker_id: int | None = None
) -> list[PartitionProducer]:
    """The producers of partitions, sorted by partition, as reported by the leaders or, with
    `broker_id`, by one broker that has replicas.
    """
    found: dict[TopicPartition, list[PartitionProducer]] = {}

    async def attempt() -> None:
        left = [partition for partition in partitions if partition not in found]
        if broker_id is None:
            by_broker = await cluster.by_leader(left)
        else:
            by_broker = {broker_id: left}
        retriable: KafkaError | None = None
        for node_id, some in by_broker.items():
            for first in range(0, len(some), PARTITIONS_AT_ONCE):
                few = some[first : first + PARTITIONS_AT_ONCE]
                request = DescribeProducersRequest(topics=_by_topic(few))
                answer = await cluster.send(node_id, request, DescribeProducersResponse)
                retriable = _take_producers(answer, found) or retriable
        if retriable is not None:
            raise retriable

    await cluster.with_retries(attempt)
    return sorted(producer for producers in found.values() for producer in producers)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicRequest]:
    topics: dict[str, TopicRequest] = {}
    for name, number in partitions:
        topics.setdefault(name, TopicRequest(name=name)).partition_indexes.append(number)
    return list(topics.values())


def _take_producers(
    answer: DescribeProducersResponse, found: dict[TopicPartition, list[PartitionProducer]]
) -> KafkaError | None:
    """Adds the described producers to `found`. Returns a retriable error, raises any other."""
    retriable = None
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                detail = f"{partition}: {row.error_message or 'its producers'}"
                error = KafkaError(error_code(row.error_code), detail)
                if error.code not in RETRIABLE:
                    raise error
                retriable = error
                continue
            found[partition] = [
                PartitionProducer(
                    partition,
                    state.producer_id,
                    state.producer_epoch,
                    state.coordinator_epoch,
                    state.last_sequence,
                    state.last_timestamp,
                    None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
                )
                for state in row.active_producers
            ]
    return retriable


async def find_hanging(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    *,
    longer_than_ms: int,
    broker_id: int | None = None,
) -> list[PartitionProducer]:
    """Transactions that have been open for longer than `longer_than_ms` and that no coordinator
    will end.
    """
    now_ms = cluster.clock.wall_ms()
    candidates = [
        producer
        for producer in await describe_producers(cluster, partitions, broker_id)
        if producer.start_offset is not None
        and now_ms - producer.last_timestamp_ms > longer_than_ms
    ]
    if not candidates:
        return []
    producer_ids = sorted({producer.producer_id for producer in candidates})
    listed, _ = await list_transactions(cluster, TransactionFilter(producer_ids=producer_ids))
    names = {listed_id.producer_id: listed_id.transactional_id for listed_id in listed}
    known = await describe_transactions(cluster, names.values())
    # The coordinator removes a partition from its list once the marker is written.
    expected = {
        (names[listed_id.producer_id], partition)
        for listed_id in listed
        if (transaction := known[listed_id.transactional_id]) is not None
        for partition in transaction.partitions
    }
    return [
        producer
        for producer in candidates
        if (names.get(producer.producer_id), producer.partition) not in expected
    ]


async def find_open(
    cluster: Cluster, partition: TopicPartition, start_offset: int
) -> PartitionProducer:
    """The producer whose open transaction starts at this offset."""
    for producer in await describe_producers(cluster, [partition]):
        if producer.start_offset == start_offset:
            return producer
    raise ClientError(f"no open transaction of {partition} starts at offset {start_offset}")


async def abort_open(cluster: Cluster, producer: PartitionProducer) -> None:
    """Writes the abort marker that no coordinator will write."""
    topic, number = producer.partition
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        # -1 if no coordinator has written a marker for this producer yet; 0 fences no coordinator.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
    )

    async def attempt() -> None:
        node_id = await cluster.leader(producer.partition)
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = await cluster.send(node_id, request, WriteTxnMarkersResponse)
        errors = [
            row.error_code
            for result in answer.markers
            for topic in result.topics
            for row in topic.partitions
        ]
        if len(errors) != 1:
            raise ClientError(f"broker {node_id} did not report a result for {producer.partition}")
        check(errors[0], f"aborting the transaction on {producer.partition}")

    await cluster.with_retries(attempt)


async def force_terminate(cluster: Cluster, transactional_id: str) -> None:
    """Fences the producer with this id, which also aborts its open transaction."""

    async def attempt() -> None:
        node_id = await cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=round(cluster.settings.request_timeout_ms),
        )
        answer = await cluster.send(node_id, request, InitProducerIdResponse)
        check(answer.error_code, f"transactional id '{transactional_id}'")

    await cluster.with_retries(attempt)
