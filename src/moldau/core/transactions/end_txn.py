"""EndTxn, and the coordinator's own abort of a transaction.

With transaction version 2 each end raises the producer's epoch. So a request with the epoch before
the current one is the retry of a request whose response was lost, and one with the current epoch is
a new request. While no transaction is open, the answer is (fenced: PRODUCER_FENCED, invalid:
INVALID_TXN_STATE, known: the id and epoch that the first attempt resulted in):

                      abort                    commit
                      retry    current         retry    current
    Empty             fenced   raises epoch    fenced   invalid
    CompleteAbort     known    raises epoch    invalid  invalid
    CompleteCommit    invalid  raises epoch    known    invalid

Before version 2 only the current epoch is valid; Complete* accepts the same end again, any other
state or end is invalid.
"""

from dataclasses import replace

from moldau.core.transactions.init_producer_id import required_producer_id
from moldau.core.transactions.requests import End, Unchanged
from moldau.core.transactions.states import PREPARED, TransactionState
from moldau.core.transactions.transaction import LAST_CLIENT_EPOCH, NO_PRODUCER, Transaction
from moldau.core.transactions.transitions import fenced_epoch, prepared
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.versions import BUMPS_EPOCH_FROM
from moldau.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_ENDED = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}
_ENDING = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


def decide_end(
    current: Transaction | None,
    end: End,
    fresh_id: int | None,
    now_ms: int,
    *,
    is_pending: bool,
) -> Transaction | Unchanged:
    """Raises KafkaError. `is_pending`: a change of this id is not committed yet."""
    if current is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if end.client_version < BUMPS_EPOCH_FROM:
        return _end_before_version_2(current, end, now_ms, is_pending=is_pending)
    # Checked first: the producer's id may be part of the pending change.
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_retry = _is_retry(current, end)
    if end.producer.producer_id != current.producer_id and not _is_retry_with_former_id(
        current, end
    ):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not is_retry and (
        current.state in PREPARED or end.producer.producer_epoch != current.producer_epoch
    ):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_retry:
        return _answer_retry(current, end)
    if end.commits and current.state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _prepared(current, fresh_id, now_ms, commits=end.commits, version=end.client_version)


def _is_retry_with_former_id(current: Transaction, end: End) -> bool:
    """The first attempt exhausted the epochs and moved to a new producer id."""
    return (
        current.previous_producer_id == end.producer.producer_id
        and end.producer.producer_epoch == LAST_CLIENT_EPOCH
        and current.producer_epoch == 0
    )


def _is_retry(current: Transaction, end: End) -> bool:
    """Empty and Ongoing do not result from an end, so a request in them cannot be a retry. An end
    by an older client raised no epoch, so a producer one epoch lower is another one: it must not
    get the current identity. (In Kafka 4.3 it does.)
    """
    if current.state not in _ENDED and current.state not in _ENDING:
        return False
    if current.client_version < BUMPS_EPOCH_FROM:
        return False
    is_one_epoch_lower = current.producer_epoch == end.producer.producer_epoch + 1
    return is_one_epoch_lower or (
        current.state in _ENDED and _is_retry_with_former_id(current, end)
    )


def _answer_retry(current: Transaction, end: End) -> Unchanged:
    if current.state in _ENDING and _ENDING[current.state] is end.commits:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if _ENDED.get(current.state) is not end.commits:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return Unchanged(current.producer)


def _end_before_version_2(
    current: Transaction, end: End, now_ms: int, *, is_pending: bool
) -> Transaction | Unchanged:
    if end.producer.producer_id != current.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if end.producer.producer_epoch != current.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_pending or _ENDING.get(current.state) is end.commits:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if _ENDED.get(current.state) is end.commits:
        return Unchanged(NO_PRODUCER)
    if current.state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return prepared(current, commits=end.commits, client_version=0, now_ms=now_ms)


def _prepared(
    current: Transaction, fresh_id: int | None, now_ms: int, *, commits: bool, version: int
) -> Transaction:
    next_id = required_producer_id(fresh_id) if current.is_epoch_exhausted else NO_PRODUCER_ID
    return prepared(
        current,
        commits=commits,
        client_version=version,
        now_ms=now_ms,
        next_producer_id=next_id,
    )


def decide_abort(
    current: Transaction,
    transaction_version: int,
    fresh_id: int | None,
    now_ms: int,
    *,
    was_tried: bool,
) -> tuple[Transaction, Transaction]:
    """Fences the producer and aborts its transaction. Returns the present state and the state after
    the abort: before version 2 the epoch is raised at once, or the producer could write until the
    abort is in the log.
    """
    if transaction_version >= BUMPS_EPOCH_FROM:
        after = _prepared(current, fresh_id, now_ms, commits=False, version=transaction_version)
        return current, after
    fenced = replace(
        current,
        producer_epoch=fenced_epoch(current, was_tried=was_tried),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return fenced, prepared(fenced, commits=False, client_version=0, now_ms=now_ms)
