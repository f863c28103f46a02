"""EndTxn, and the end that others make: how a transaction is decided.

With transaction version 2 each end raises the producer's epoch. So a producer with the epoch before
the current one asks again for what it was not told (retry), and one with the current epoch asks for
something new. Where no transaction is open:

                      abort                    commit
                      retry    current         retry    current
    Empty             fenced   raises epoch    fenced   invalid
    CompleteAbort     known    raises epoch    invalid  invalid
    CompleteCommit    invalid  raises epoch    known    invalid

Before version 2 only the current epoch will do; Complete* knows the same end, all else is invalid.
"""

from dataclasses import replace

from moldau.core.transactions.init_producer_id import needed
from moldau.core.transactions.requests import End, Known
from moldau.core.transactions.states import PREPARED, TransactionState
from moldau.core.transactions.transaction import LAST_CLIENT_EPOCH, NOBODY, Transaction
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
) -> Transaction | Known:
    """Raises KafkaError. `is_pending`: a change of this id is under way."""
    if current is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if end.client_version < BUMPS_EPOCH_FROM:
        return _end_before_version_2(current, end, now_ms, is_pending=is_pending)
    # The first question: the producer may have an id that is only pending yet.
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_retry = _is_retry(current, end)
    if end.producer.producer_id != current.producer_id and not _is_retry_over_ids(current, end):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not is_retry and (
        current.state in PREPARED or end.producer.producer_epoch != current.producer_epoch
    ):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_retry:
        return _end_again(current, end)
    if end.commits and current.state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _prepared(current, fresh_id, now_ms, commits=end.commits, version=end.client_version)


def _is_retry_over_ids(current: Transaction, end: End) -> bool:
    """The end that was asked for used up the epochs, and brought another producer id."""
    return (
        current.previous_producer_id == end.producer.producer_id
        and end.producer.producer_epoch == LAST_CLIENT_EPOCH
        and current.producer_epoch == 0
    )


def _is_retry(current: Transaction, end: End) -> bool:
    """Empty and Ongoing are not made by an end, so nobody can ask for theirs again. An end of an
    older client raised no epoch: who is one behind is somebody else, and must not be told how to go
    on in its place. (Kafka 4.3 does.)
    """
    if current.state not in _ENDED and current.state not in _ENDING:
        return False
    if current.client_version < BUMPS_EPOCH_FROM:
        return False
    is_one_behind = current.producer_epoch == end.producer.producer_epoch + 1
    return is_one_behind or (current.state in _ENDED and _is_retry_over_ids(current, end))


def _end_again(current: Transaction, end: End) -> Known:
    if current.state in _ENDING and _ENDING[current.state] is end.commits:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if _ENDED.get(current.state) is not end.commits:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return Known(current.producer)


def _end_before_version_2(
    current: Transaction, end: End, now_ms: int, *, is_pending: bool
) -> Transaction | Known:
    if end.producer.producer_id != current.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if end.producer.producer_epoch != current.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_pending or _ENDING.get(current.state) is end.commits:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if _ENDED.get(current.state) is end.commits:
        return Known(NOBODY)
    if current.state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return prepared(current, commits=end.commits, client_version=0, now_ms=now_ms)


def _prepared(
    current: Transaction, fresh_id: int | None, now_ms: int, *, commits: bool, version: int
) -> Transaction:
    next_id = needed(fresh_id) if current.is_epoch_exhausted else NO_PRODUCER_ID
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
    """An end that its producer did not ask for: it is fenced. What it is now, and what becomes of
    it: before version 2 the epoch must be taken at once, or the producer could go on until the
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
