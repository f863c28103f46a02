"""AddPartitionsToTxn and its verification, in every state and from every producer."""

import pytest
from core.transactions.bench import ID, P0, P1, Bench
from core.transactions.test_ends_of_transactions import EPOCH, PRODUCER, bench_with

from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import ProducerEpoch, TopicPartition

S = TransactionState
ME = ProducerIdAndEpoch(PRODUCER, ProducerEpoch(EPOCH))
FENCED = ErrorCode.PRODUCER_FENCED
COMING = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
AT_REST = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)


def verify(
    bench: Bench, producer: ProducerIdAndEpoch, *partitions: TopicPartition
) -> dict[TopicPartition, ErrorCode] | ErrorCode:
    try:
        return bench.shard.verify_partitions(ID, producer, partitions)
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("client_version", [0, 2])
def test_the_first_partition_begins_a_transaction(
    state: TransactionState, client_version: int
) -> None:
    bench = bench_with(state)
    bench.now_ms += 11
    ticket = bench.begin_add(ME, P0, client_version=client_version)
    assert bench.answer(ticket) is None
    current = bench.current()
    assert (current.state, current.partitions) == (S.ONGOING, frozenset({P0}))
    assert (current.start_ms, current.update_ms) == (bench.now_ms, bench.now_ms)
    assert current.client_version == client_version


def test_further_partitions_keep_the_start_time() -> None:
    bench = bench_with(S.ONGOING)
    began_ms = bench.current().start_ms
    bench.now_ms += 11
    assert bench.add(ME, P1) is None
    assert bench.current().partitions == {P0, P1}
    assert (bench.current().start_ms, bench.current().update_ms) == (began_ms, bench.now_ms)


def test_known_partitions_are_not_written_again() -> None:
    bench = bench_with(S.ONGOING)
    count = len(bench.log)
    bench.holds_commits = True
    assert bench.add(ME, P0) is None
    assert len(bench.log) == count


@pytest.mark.parametrize("state", PREPARED)
def test_a_decided_transaction_accepts_no_partitions(state: TransactionState) -> None:
    bench = bench_with(state)
    assert bench.add(ME, P0) == COMING
    assert verify(bench, ME, P0) == COMING


@pytest.mark.parametrize("state", [*AT_REST, S.ONGOING])
def test_other_producers_may_not_add_or_verify(state: TransactionState) -> None:
    bench = bench_with(state)
    for producer, code in (
        (ProducerIdAndEpoch(PRODUCER + 1, ProducerEpoch(EPOCH)), MAPPING),
        (ProducerIdAndEpoch(PRODUCER, ProducerEpoch(EPOCH - 1)), FENCED),
        (ProducerIdAndEpoch(PRODUCER, ProducerEpoch(EPOCH + 1)), FENCED),
    ):
        assert bench.add(producer, P0) == code
        assert verify(bench, producer, P0) == code


def test_an_unknown_id_has_no_transaction() -> None:
    bench = Bench()
    assert bench.add(ME, P0) == MAPPING
    assert verify(bench, ME, P0) == MAPPING


def test_verification_answers_for_each_partition() -> None:
    bench = bench_with(S.ONGOING)
    assert verify(bench, ME, P0, P1) == {P0: ErrorCode.NONE, P1: ABORTABLE}
    assert verify(bench_with(S.EMPTY), ME, P0) == {P0: ABORTABLE}


def test_a_partition_counts_when_it_is_committed() -> None:
    bench = bench_with(S.ONGOING)
    bench.holds_commits = True
    ticket = bench.begin_add(ME, P1)
    assert bench.add(ME, P1) == COMING
    assert verify(bench, ME, P0, P1) == {P0: ErrorCode.NONE, P1: ABORTABLE}
    bench.commit_all()
    assert bench.answer(ticket) is None
    assert verify(bench, ME, P1) == {P1: ErrorCode.NONE}


def test_a_pending_change_makes_all_others_wait() -> None:
    bench = bench_with(S.ONGOING)
    bench.holds_commits = True
    bench.begin_add(ME, P1)
    assert bench.init() == COMING
    assert bench.init((PRODUCER, EPOCH)) == COMING
    assert bench.end(ME, commits=True) == COMING
    assert bench.end(ME, commits=True, client_version=0) == COMING
    # Before version 2, the epoch is checked first.
    stale = (PRODUCER, EPOCH - 1)
    assert bench.end(stale, commits=True, client_version=0) == FENCED
    assert bench.end(stale, commits=True) == COMING
    bench.now_ms += 10**9
    assert bench.abort_overdue() == []


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_change_that_the_log_refuses_has_no_effect(
    refusal: ErrorCode, expected: ErrorCode
) -> None:
    for is_written in (True, False):
        bench = bench_with(S.ONGOING)
        before = bench.current()
        if is_written:
            bench.holds_commits = True
            ticket = bench.begin_add(ME, P1)
            bench.fail_all(refusal)
            bench.holds_commits = False
        else:
            bench.refuses = refusal
            ticket = bench.begin_add(ME, P1)
            bench.refuses = None
        assert bench.answer(ticket) == expected
        assert bench.current() == before
        assert bench.add(ME, P1) is None
