"""Transactions for administrators: ListTransactions, DescribeTransactions, counts for metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from moldau.core.patterns.matcher import Pattern
from moldau.core.patterns.syntax import PatternError
from moldau.core.transactions.states import BY_TEXT, TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_transactions import TopicData
from moldau.protocol.messages.describe_transactions import TransactionState as DescribedState
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.list_transactions import TransactionState as ListedState


@frozen
class Filters:
    """A filter that is None matches everything."""

    producer_ids: frozenset[int] | None
    states: frozenset[TransactionState] | None
    unknown_states: Sequence[str]
    longer_than_ms: int | None
    pattern: Pattern | None

    def passes(self, transaction: Transaction, now_ms: int) -> bool:
        """Raises PatternError if matching exceeds the pattern's budget."""
        return (
            transaction.state is not TransactionState.DEAD
            and (self.producer_ids is None or transaction.producer_id in self.producer_ids)
            and (self.states is None or transaction.state in self.states)
            # Without a start time (-1) a transaction counts as old.
            and (self.longer_than_ms is None or now_ms - transaction.start_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.matches(transaction.transactional_id))
        )


def filters_of(request: ListTransactionsRequest) -> Filters:
    """Raises INVALID_REGULAR_EXPRESSION."""
    names = request.state_filters
    try:
        pattern = Pattern(text) if (text := request.transactional_id_pattern) else None
    except PatternError as error:
        raise _invalid(error) from error
    return Filters(
        frozenset(request.producer_id_filters) or None,
        frozenset(BY_TEXT[name] for name in names if name in BY_TEXT) if names else None,
        [name for name in dict.fromkeys(names) if name not in BY_TEXT],
        request.duration_filter if request.duration_filter >= 0 else None,
        pattern,
    )


def list_transactions(
    transactions: Iterable[Transaction], filters: Filters, now_ms: int
) -> Iterator[ListedState]:
    """Raises INVALID_REGULAR_EXPRESSION if matching exceeds the pattern's budget."""
    try:
        for transaction in transactions:
            if filters.passes(transaction, now_ms):
                yield ListedState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.text,
                )
    except PatternError as error:
        raise _invalid(error) from error


def _invalid(error: PatternError) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern: {error}")


def describe_transaction(transaction: Transaction) -> DescribedState:
    """Includes the partitions whose markers may still be missing."""
    topics: dict[str, TopicData] = {}
    for name, number in sorted(transaction.partitions):
        topics.setdefault(name, TopicData(topic=name)).partitions.append(number)
    return DescribedState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=list(topics.values()),
    )


def count_transactions(transactions: Iterable[Transaction]) -> dict[str, int]:
    """Counts by state, including zero."""
    counts = Counter(transaction.state for transaction in transactions)
    return {state.text: counts[state] for state in TransactionState}
