"""Records of __transaction_state, as Kafka 4.3 writes and reads them."""

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.transactions.states import STORED, TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from moldau.protocol.records.stored_records import (
    CoordinatorTopic,
    decode_coordinator_key,
    decode_coordinator_value,
)
from moldau.types import Buffer, ProducerEpoch, TopicPartition

FLEXIBLE_FROM = 1
"""The first transaction version whose values contain the previous and the next producer id."""


def decode_transaction_record(key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
    """None for a record type of a later release: it may be left over from a downgrade."""
    try:
        decoded = decode_coordinator_key(CoordinatorTopic.TRANSACTION, key)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    if value is None:
        return CoordinatorRecord(decoded)
    message, version = decode_coordinator_value(
        CoordinatorTopic.TRANSACTION, decoded.API_KEY, value
    )
    return CoordinatorRecord(decoded, message, version)


def transaction_record(transaction: Transaction, transaction_version: int) -> CoordinatorRecord:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=_partitions_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction_version < FLEXIBLE_FROM:
        return CoordinatorRecord(_key(transaction.transactional_id), value, 0)
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return CoordinatorRecord(_key(transaction.transactional_id), value, 1)


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(transactional_id))


def stored_transaction(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Raises INVALID_RECORD for a state that is never stored."""
    state = STORED.get(value.transaction_status)
    if state is None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"transactional id {key.transactional_id} has state {value.transaction_status}",
        )
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=ProducerEpoch(value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _key(transactional_id: str) -> TransactionLogKey:
    return TransactionLogKey(transactional_id=transactional_id)


def _partitions_by_topic(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    return [
        PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()
    ]
