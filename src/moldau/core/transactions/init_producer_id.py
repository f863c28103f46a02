"""InitProducerId: which producer may start, or continue, with a transactional id."""

from moldau.core.transactions.requests import Fence, Init
from moldau.core.transactions.states import PREPARED, TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction, is_exhausted
from moldau.core.transactions.transitions import next_epoch, next_producer_id
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import NO_PRODUCER_EPOCH


def decide_init(
    current: Transaction | None, init: Init, fresh_id: int | None, now_ms: int
) -> Transaction | Fence:
    """The caller has checked that no change of this id is pending. Raises KafkaError."""
    if current is None:
        current = Transaction(
            transactional_id=init.transactional_id,
            producer_id=required_producer_id(fresh_id),
            timeout_ms=init.timeout_ms,
            update_ms=now_ms,
        )
    expected = init.expected
    if expected is not None and not _may_continue(current, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        return Fence()
    expected_epoch = None if expected is None else expected.producer_epoch
    if current.is_epoch_exhausted and expected_epoch in {None, current.producer_epoch}:
        return next_producer_id(
            current,
            required_producer_id(fresh_id),
            init.timeout_ms,
            now_ms,
            continues=expected is not None,
        )
    return next_epoch(current, expected_epoch, init.timeout_ms, now_ms)


def _may_continue(current: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Checks the producer id; the epoch is checked when it is raised. The previous id is accepted
    if its epochs are exhausted: the response with the new id may have been lost.
    """
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == current.producer_id
        or (
            expected.producer_id == current.previous_producer_id
            and is_exhausted(expected.producer_epoch)
        )
    )


def required_producer_id(fresh_id: int | None) -> int:
    """Clients retry this error, as with Kafka while it waits for more producer ids."""
    if fresh_id is None:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is available")
    return fresh_id
