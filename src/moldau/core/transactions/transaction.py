"""The coordinator's state of one transactional id, as an immutable value."""

from typing import NamedTuple

from moldau.core.transactions.states import TransactionState
from moldau.frozen import frozen
from moldau.types import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    TopicPartition,
)

LAST_CLIENT_EPOCH = PRODUCER_EPOCH_MAX - 1
"""PRODUCER_EPOCH_MAX is reserved for fencing a producer with this epoch."""
NO_TIMEOUT_MS = INT32_MAX
"""Marks two-phase commits, which have no timeout."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: ProducerEpoch


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@frozen(kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id of the previous state."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id to continue with when a transaction ends with the last epoch."""
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """A request with this epoch may be the retry of one that succeeded. It is not stored."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int
    client_version: int = 0
    """The transaction version that the client last used."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def is_overdue(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )


def is_exhausted(producer_epoch: ProducerEpoch) -> bool:
    return producer_epoch >= LAST_CLIENT_EPOCH
