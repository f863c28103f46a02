"""ListTransactions and DescribeTransactions."""

import pytest

from moldau.core.transactions.listing import (
    count_transactions,
    describe_transaction,
    filters_of,
    list_transactions,
)
from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.types import ProducerEpoch, TopicPartition

NOW_MS = 1_000_000


def transaction(name: str, producer_id: int, state: TransactionState, age_ms: int) -> Transaction:
    return Transaction(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(3),
        timeout_ms=60_000,
        state=state,
        start_ms=NOW_MS - age_ms,
        update_ms=NOW_MS,
        partitions=frozenset(
            {TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}
        ),
    )


ALL = [
    transaction("empty", 1, TransactionState.EMPTY, NOW_MS + 1),
    transaction("young", 2, TransactionState.ONGOING, 10),
    transaction("old", 3, TransactionState.ONGOING, 5_000),
    transaction("done", 4, TransactionState.COMPLETE_COMMIT, 1_000),
    transaction("going", 5, TransactionState.DEAD, 1_000),
]


def listed(**filters: object) -> list[str]:
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    found = list_transactions(ALL, filters_of(request), NOW_MS)
    return [state.transactional_id for state in found]


def test_all_ids_except_expiring_ones_are_listed() -> None:
    assert listed() == ["empty", "young", "old", "done"]
    (first, *_) = list_transactions(ALL, filters_of(ListTransactionsRequest()), NOW_MS)
    assert (first.producer_id, first.transaction_state) == (1, "Empty")


def test_all_filters_must_pass() -> None:
    assert listed(state_filters=["Ongoing"]) == ["young", "old"]
    assert listed(state_filters=["Ongoing", "CompleteCommit"]) == ["young", "old", "done"]
    assert listed(producer_id_filters=[3, 4, 99]) == ["old", "done"]
    assert listed(duration_filter=0) == ["empty", "young", "old", "done"]
    assert listed(duration_filter=10) == ["empty", "old", "done"], "longer than, not as long as"
    assert listed(duration_filter=-5) == ["empty", "young", "old", "done"]
    assert listed(transactional_id_pattern="") == ["empty", "young", "old", "done"]
    assert listed(transactional_id_pattern="o.*|d.*") == ["old", "done"]
    assert listed(state_filters=["Ongoing"], transactional_id_pattern=".{3}") == ["old"]
    assert listed(state_filters=["Ongoing"], producer_id_filters=[4]) == []


def test_unknown_states_are_returned_and_match_nothing() -> None:
    request = ListTransactionsRequest(state_filters=["Asleep", "ongoing", "Asleep"])
    assert filters_of(request).unknown_states == ["Asleep", "ongoing"]
    assert listed(state_filters=["Asleep"]) == []
    assert listed(state_filters=["Dead"]) == []


@pytest.mark.parametrize("pattern", ["(", "a**", r"(a)\1", "(a{1000}){1000}"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        listed(transactional_id_pattern=pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_description_has_partitions_by_topic() -> None:
    described = describe_transaction(ALL[2])
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [
        ("a", [0, 2]),
        ("b", [1]),
    ]
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (3, 3)
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (
        60_000,
        NOW_MS - 5_000,
    )


def test_states_without_transactions_are_counted_too() -> None:
    counts = count_transactions(ALL)
    assert (counts["Ongoing"], counts["Empty"], counts["PrepareAbort"]) == (2, 1, 0)
