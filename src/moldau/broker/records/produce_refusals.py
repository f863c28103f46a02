"""Errors of Produce. A response has an error message only where Kafka's has, and the same one,
because clients print it; other details go to the log.
"""

import logging

from moldau.broker.replicas.partition import Partition
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from moldau.protocol.records.batch_validation import InvalidRecordsError
from moldau.protocol.versions import PRODUCE_ADDS_PARTITIONS

_log = logging.getLogger(__name__)

ABORTABLE_ERRORS_FROM = 11
RECORD_ERRORS_MAX = 100

# Replaces errors that clients do not expect from Produce. They retry after this one, without
# looking for another leader first.
_RETRIABLE = ErrorCode.NOT_ENOUGH_REPLICAS
_NOT_VERIFIED = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# Kafka answers these errors without the log start offset.
_WITHOUT_LOG_START_OFFSET = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


class _ReportedError(KafkaError):
    """An error whose detail is Kafka's message, and is sent to the client."""


def put_refused_append(
    answer: PartitionProduceResponse, error: KafkaError, partition: Partition
) -> None:
    if partition.has_log and error.code not in _WITHOUT_LOG_START_OFFSET:
        answer.log_start_offset = partition.log.log_start_offset
    put_refusal(answer, error)


def put_refusal(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=each.batch_index, batch_index_error_message=each.message
            )
            for each in error.record_errors[:RECORD_ERRORS_MAX]
        ]
    if isinstance(error, _ReportedError | InvalidRecordsError):
        answer.error_message = error.detail
    else:
        _log.debug("records for partition %s are refused: %s", answer.index, error)


def as_produce_error(error: KafkaError, version: int) -> KafkaError:
    """The error in a form that clients of this version handle."""
    code = error.code
    adds = version >= PRODUCE_ADDS_PARTITIONS
    if code in _NOT_VERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return _ReportedError(
            _RETRIABLE,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    is_abortable = code is ErrorCode.TRANSACTION_ABORTABLE
    if is_abortable and version < ABORTABLE_ERRORS_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return _ReportedError(code, "Partition was not added to the transaction")
    return error


def without_transactional_id() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "a transactional batch without a transactional id",
    )


def several_producers() -> KafkaError:
    return _ReportedError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "Transactional records contained more than one producer ID",
    )
