"""The transaction coordinator's shard: the transactional ids of one partition of
__transaction_state.

A change is pending from its append to its commit; concurrent requests are refused and retried. It
takes effect when it is committed.
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import TypeAlias

from moldau.core.coordinator.effects import AnyReply, Append, Reply, Ticket, TimerKey, Turn
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.transactions.end_txn import decide_abort, decide_end
from moldau.core.transactions.init_producer_id import decide_init
from moldau.core.transactions.requests import (
    AddPartitions,
    Completed,
    End,
    Fence,
    Init,
    MarkersNeeded,
    Unchanged,
)
from moldau.core.transactions.settings import TransactionSettings
from moldau.core.transactions.states import AT_REST, PREPARED, TransactionState
from moldau.core.transactions.transaction import NO_PRODUCER, ProducerIdAndEpoch, Transaction
from moldau.core.transactions.transaction_records import (
    stored_transaction,
    transaction_record,
    transaction_tombstone,
)
from moldau.core.transactions.transitions import completed, with_partitions
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.transaction_log import TransactionLogKey, TransactionLogValue
from moldau.protocol.versions import BUMPS_EPOCH_FROM
from moldau.types import NO_PRODUCER_ID, Offset, TopicPartition

EXPIRY_TIMER: TimerKey = ("expiry",)
EXPIRY_IDS_MAX = 500
"""Ids checked in one turn; the rest waits for the next."""
COMPLETION_RETRY_MS = 100


class Step(Enum):
    CHANGE = "change"
    FENCE = "fence"
    """A change whose epoch is raised before it is in the log."""
    COMPLETE = "complete"
    """A change that is retried until it succeeds: its markers are written."""


@frozen
class Sequel:
    """A change that is being appended."""

    after: Transaction
    step: Step = Step.CHANGE


@frozen
class Expired:
    transactional_ids: tuple[str, ...]


TransactionTurn: TypeAlias = Turn[Sequel | Expired, MarkersNeeded | Completed]


class TransactionShard:
    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        self.transactions: dict[str, Transaction] = {}
        """The committed state by transactional id."""
        self._settings = settings
        self._pending: dict[str, TransactionState] = {}
        self._ongoing: set[str] = set()
        """Ids with an open transaction, which may time out."""
        self._failed_fences: set[str] = set()
        """Ids whose epoch was raised by an append that may or may not be in the log."""
        self._to_expire: list[str] = []

    # Replaying

    def replay(
        self, record: CoordinatorRecord, _offset: Offset, _producer_id: int = NO_PRODUCER_ID
    ) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self._forget(key.transactional_id)
        else:
            assert isinstance(value, TransactionLogValue)
            self._set(stored_transaction(key, value))

    def end_transaction(self, _producer_id: int, *, commits: bool) -> None:
        """Does nothing: this log is never written in transactions."""

    def _set(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing.add(transactional_id)
        else:
            self._ongoing.discard(transactional_id)

    def _forget(self, transactional_id: str) -> None:
        self.transactions.pop(transactional_id, None)
        self._ongoing.discard(transactional_id)
        self._failed_fences.discard(transactional_id)

    # Loading and timers

    def loaded(self, turn: TransactionTurn) -> None:
        """Resumes the transactions whose end is decided."""
        for transaction in list(self.transactions.values()):
            if transaction.state in PREPARED:
                self._need_markers(transaction, turn)
        turn.start_timer(EXPIRY_TIMER, self._settings().expiry_check_interval_ms)

    def unloaded(self, turn: TransactionTurn) -> None:
        """Does nothing: the shell has refused the requests that waited for a commit."""

    def timer_fired(self, key: TimerKey, turn: TransactionTurn) -> None:
        if key == EXPIRY_TIMER:
            self._expire(turn)
        else:
            _, transactional_id = key
            self._complete(self.transactions[transactional_id], turn)

    # Requests

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next request for this id may need a new producer id."""
        current = self.transactions.get(transactional_id)
        return current is None or current.is_epoch_exhausted

    def init(
        self,
        init: Init,
        fresh_id: int | None,
        ticket: Ticket[ProducerIdAndEpoch],
        turn: TransactionTurn,
    ) -> None:
        """Replies with a producer id and epoch."""
        self._check_not_pending(init.transactional_id)
        current = self.transactions.get(init.transactional_id)
        next_state = decide_init(current, init, fresh_id, turn.now_ms)
        if isinstance(next_state, Fence):
            assert current is not None
            # The requester retries and gets the epoch after the fencing one.
            refusal = Reply(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
            self._abort(current, fresh_id, turn, refusal)
        else:
            self._change(next_state, turn, Reply(ticket, next_state.producer))

    def add_partitions(
        self, add: AddPartitions, ticket: Ticket[None], turn: TransactionTurn
    ) -> None:
        """Replies with None."""
        # Checked first: the producer's id may be part of the pending change.
        self._check_not_pending(add.transactional_id)
        current = self._checked(add.transactional_id, add.producer)
        if current.state is TransactionState.ONGOING and current.partitions.issuperset(
            add.partitions
        ):
            turn.reply(ticket, None)
        else:
            after = with_partitions(current, add.partitions, add.client_version, turn.now_ms)
            self._change(after, turn, Reply(ticket, None))

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Checks that the partitions are part of the open transaction. Pending changes are ignored:
        the append is checked again.
        """
        members = self._checked(transactional_id, producer).partitions
        return {
            each: ErrorCode.NONE if each in members else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def end(
        self,
        end: End,
        fresh_id: int | None,
        ticket: Ticket[ProducerIdAndEpoch],
        turn: TransactionTurn,
    ) -> None:
        """Replies with the producer id and epoch to continue with; NO_PRODUCER before version 2."""
        next_state = decide_end(
            self.transactions.get(end.transactional_id),
            end,
            fresh_id,
            turn.now_ms,
            is_pending=end.transactional_id in self._pending,
        )
        if isinstance(next_state, Unchanged):
            turn.reply(ticket, next_state.producer)
            return
        producer = NO_PRODUCER
        if end.client_version >= BUMPS_EPOCH_FROM:
            producer = completed(next_state, turn.now_ms).producer
        self._change(next_state, turn, Reply(ticket, producer))

    def overdue(self, now_ms: int) -> list[str]:
        return [
            each
            for each in self._ongoing
            if each not in self._pending and self.transactions[each].is_overdue(now_ms)
        ]

    def abort_overdue(
        self, transactional_id: str, fresh_id: int | None, turn: TransactionTurn
    ) -> None:
        """Aborts the transaction if it is still overdue."""
        current = self.transactions.get(transactional_id)
        is_free = transactional_id not in self._pending
        if current is not None and is_free and current.is_overdue(turn.now_ms):
            self._abort(current, fresh_id, turn)

    def _check_not_pending(self, transactional_id: str) -> None:
        if transactional_id in self._pending:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _checked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        """The id's present state. Raises KafkaError if this producer may not change it now."""
        current = self.transactions.get(transactional_id)
        if current is None or current.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.producer_epoch != producer.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if current.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return current

    # Changes

    def _change(
        self,
        after: Transaction,
        turn: TransactionTurn,
        *replies: AnyReply,
        step: Step = Step.CHANGE,
    ) -> None:
        self._pending[after.transactional_id] = after.state
        record = transaction_record(after, self._settings().transaction_version)
        turn.append(
            Append(
                records=[record],
                replies=list(replies),
                sequel=Sequel(after, step),
                # Ids are independent of each other, and one id has one change at a time.
                may_gather=True,
            )
        )

    def _abort(
        self, current: Transaction, fresh_id: int | None, turn: TransactionTurn, *replies: AnyReply
    ) -> None:
        transactional_id = current.transactional_id
        version = self._settings().transaction_version
        was_tried = transactional_id in self._failed_fences
        fenced, after = decide_abort(current, version, fresh_id, turn.now_ms, was_tried=was_tried)
        self._set(fenced)
        step = Step.CHANGE if fenced is current else Step.FENCE
        self._change(after, turn, *replies, step=step)

    def _need_markers(self, prepared: Transaction, turn: TransactionTurn) -> None:
        """Requests the markers. No other change of the id is accepted until it is complete."""
        self._failed_fences.discard(prepared.transactional_id)
        self._pending[prepared.transactional_id] = completed(prepared, turn.now_ms).state
        turn.request(
            MarkersNeeded(
                transactional_id=prepared.transactional_id,
                producer=prepared.producer,
                commits=prepared.state is TransactionState.PREPARE_COMMIT,
                partitions=prepared.partitions,
                transaction_version=prepared.client_version,
            )
        )

    def markers_written(self, transactional_id: str, turn: TransactionTurn) -> None:
        """Every partition has its marker or was deleted."""
        current = self.transactions.get(transactional_id)
        if current is not None and current.state in PREPARED:
            self._complete(current, turn)

    def _complete(self, prepared: Transaction, turn: TransactionTurn) -> None:
        self._change(completed(prepared, turn.now_ms), turn, step=Step.COMPLETE)

    # Results of appends

    def appended(self, sequel: Sequel | Expired, turn: TransactionTurn) -> None:
        pass

    def committed(self, sequel: Sequel | Expired, turn: TransactionTurn) -> None:
        if isinstance(sequel, Expired):
            for transactional_id in sequel.transactional_ids:
                del self._pending[transactional_id]
                self._forget(transactional_id)
            return
        after = sequel.after
        del self._pending[after.transactional_id]
        self._set(after)
        if after.state in PREPARED:
            self._need_markers(after, turn)
        elif sequel.step is Step.COMPLETE:
            turn.request(Completed(after.transactional_id))

    def failed(self, sequel: Sequel | Expired, _code: ErrorCode, turn: TransactionTurn) -> None:
        if isinstance(sequel, Expired):
            for transactional_id in sequel.transactional_ids:
                self._pending.pop(transactional_id, None)
            return
        transactional_id = sequel.after.transactional_id
        if sequel.step is Step.COMPLETE:
            turn.start_timer(("complete", transactional_id), COMPLETION_RETRY_MS)
            return
        self._pending.pop(transactional_id, None)
        if sequel.step is Step.FENCE:
            self._failed_fences.add(transactional_id)

    # Expiry

    def _expire(self, turn: TransactionTurn) -> None:
        settings = self._settings()
        if not self._to_expire:
            self._to_expire = list(self.transactions)
        checked = self._to_expire[:EXPIRY_IDS_MAX]
        self._to_expire = self._to_expire[EXPIRY_IDS_MAX:]
        oldest_ms = turn.now_ms - settings.id_expiration_ms
        expired = [each for each in checked if self._is_expired(each, oldest_ms)]
        if expired:
            self._pending |= dict.fromkeys(expired, TransactionState.DEAD)
            turn.append(
                Append(
                    records=[transaction_tombstone(each) for each in expired],
                    sequel=Expired(tuple(expired)),
                    is_atomic=False,
                )
            )
        turn.start_timer(EXPIRY_TIMER, 0 if self._to_expire else settings.expiry_check_interval_ms)

    def _is_expired(self, transactional_id: str, oldest_ms: int) -> bool:
        current = self.transactions.get(transactional_id)
        return (
            current is not None
            and transactional_id not in self._pending
            and current.state in AT_REST
            and current.update_ms <= oldest_ms
        )

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.transactions.values())
