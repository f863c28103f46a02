"""Every change of a transactional id, as a function from the state before to the state after. The
callers decide whether a change is allowed; assertions catch our own bugs.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from moldau.core.transactions.states import ALLOWED, AT_REST, TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.versions import BUMPS_EPOCH_FROM
from moldau.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    TopicPartition,
)


def _changed(before: Transaction, state: TransactionState, **changes: Any) -> Transaction:
    assert state in ALLOWED[before.state], (before, state)
    changes["previous_producer_id"] = before.producer_id
    after = replace(before, state=state, **changes)
    assert after.producer_id >= 0, after
    assert 0 <= after.producer_epoch <= PRODUCER_EPOCH_MAX, after
    return after


def next_epoch(
    before: Transaction, expected_epoch: ProducerEpoch | None, timeout_ms: int, now_ms: int
) -> Transaction:
    """A producer starts, or continues after an error (`expected_epoch`). Raises PRODUCER_FENCED if
    another one has started since.
    """
    epoch, last_epoch = ProducerEpoch(before.producer_epoch + 1), before.producer_epoch
    if expected_epoch is None:
        last_epoch = NO_PRODUCER_EPOCH
    elif before.producer_epoch not in {NO_PRODUCER_EPOCH, expected_epoch}:
        if expected_epoch != before.last_producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        # A retry: answer the same epoch again. No other producer can have started since, because
        # that would have cleared the last epoch.
        epoch, last_epoch = before.producer_epoch, before.last_producer_epoch
    return _at_rest(
        before, timeout_ms, now_ms, producer_epoch=epoch, last_producer_epoch=last_epoch
    )


def next_producer_id(
    before: Transaction, producer_id: int, timeout_ms: int, now_ms: int, *, continues: bool
) -> Transaction:
    """The epochs are exhausted. A producer that continues may retry with its old id and epoch."""
    return _at_rest(
        before,
        timeout_ms,
        now_ms,
        producer_id=producer_id,
        producer_epoch=0,
        last_producer_epoch=before.producer_epoch if continues else NO_PRODUCER_EPOCH,
    )


def _at_rest(before: Transaction, timeout_ms: int, now_ms: int, **changes: Any) -> Transaction:
    return _changed(
        before,
        TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        **changes,
    )


def with_partitions(
    before: Transaction,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    return _changed(
        before,
        TransactionState.ONGOING,
        partitions=before.partitions.union(partitions),
        start_ms=now_ms if before.state in AT_REST else before.start_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def fenced_epoch(before: Transaction, *, was_tried: bool) -> ProducerEpoch:
    """The epoch that fences the producer with the current one. `was_tried`: an earlier fence raised
    it and may be in the log; no producer got that epoch, so it can be used again.
    """
    return ProducerEpoch(min(before.producer_epoch + (0 if was_tried else 1), PRODUCER_EPOCH_MAX))


def prepared(
    before: Transaction,
    *,
    commits: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """The transaction's end is decided."""
    changes: dict[str, Any] = {}
    if client_version >= BUMPS_EPOCH_FROM:
        # EPOCH_MAX can only be reached by a bug; an abort resolves it.
        epoch = (
            before.producer_epoch
            if before.producer_epoch == PRODUCER_EPOCH_MAX and not commits
            else (before.producer_epoch + 1)
        )
        changes = {"producer_epoch": epoch, "last_producer_epoch": before.producer_epoch}
    return _changed(
        before,
        TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
        # An abort without an open transaction starts now.
        start_ms=now_ms if before.state in AT_REST else before.start_ms,
        update_ms=now_ms,
        client_version=client_version,
        next_producer_id=next_producer_id,
        **changes,
    )


def completed(before: Transaction, now_ms: int) -> Transaction:
    """All markers are written. After the last epoch the producer continues with its next id; its
    last epoch is kept, so that it can retry.
    """
    changes: dict[str, Any] = {}
    if before.client_version >= BUMPS_EPOCH_FROM and before.next_producer_id != NO_PRODUCER_ID:
        changes = {"producer_id": before.next_producer_id, "producer_epoch": 0}
    return _changed(
        before,
        TransactionState.COMPLETE_COMMIT
        if before.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        update_ms=now_ms,
        **changes,
    )
