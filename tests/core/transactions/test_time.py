"""Time and transactions: overdue transactions are aborted, idle ids expire, and failed appends are
retried.
"""

import pytest
from core.transactions.bench import ID, P0, TIMEOUT_MS, Bench
from core.transactions.test_ends_of_transactions import EPOCH, LAST, PRODUCER, bench_with

from moldau.core.transactions.settings import TransactionSettings
from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import NO_TIMEOUT_MS
from moldau.core.transactions.transaction_shard import COMPLETION_RETRY_MS
from moldau.protocol.error_codes import ErrorCode

S = TransactionState
COMING = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
ALL_STATES = (
    S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT,
)  # fmt: skip


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    bench = bench_with(S.ONGOING, version=version)
    bench.now_ms += TIMEOUT_MS
    assert bench.abort_overdue() == []
    bench.now_ms += 1
    assert bench.abort_overdue() == [ID]
    assert bench.abort_overdue() == []
    assert bench.state() is S.PREPARE_ABORT
    (needed,) = bench.needed
    assert needed.producer == (PRODUCER, EPOCH + 1)
    bench.markers_written()
    assert bench.state() is S.COMPLETE_ABORT
    # From version 2 on the producer sees it like an end that it requested itself.
    commit = bench.end((PRODUCER, EPOCH), commits=True)
    assert commit == (FENCED if version < 2 else ErrorCode.INVALID_TXN_STATE)
    assert bench.add((PRODUCER, EPOCH), P0) == FENCED


@pytest.mark.parametrize("state", [each for each in ALL_STATES if each is not S.ONGOING])
def test_only_open_transactions_time_out(state: TransactionState) -> None:
    bench = bench_with(state)
    bench.now_ms += 10**9
    assert bench.abort_overdue() == []


def test_two_phase_commits_never_time_out() -> None:
    bench = Bench()
    bench.begin_init(timeout_ms=NO_TIMEOUT_MS)
    bench.add((1000, 0), P0)
    bench.now_ms += 2**40
    assert bench.abort_overdue() == []


def test_the_time_runs_from_the_first_partition() -> None:
    bench = Bench()
    bench.init()
    bench.now_ms += 10 * TIMEOUT_MS
    bench.add((1000, 0), P0)
    bench.now_ms += TIMEOUT_MS
    assert bench.abort_overdue() == []
    bench.now_ms += 1
    assert bench.abort_overdue() == [ID]


@pytest.mark.parametrize("version", [0, 2])
def test_a_timeout_of_the_last_epoch(version: int) -> None:
    bench = bench_with(S.ONGOING, version=version, epoch=LAST)
    bench.now_ms += TIMEOUT_MS + 1
    assert bench.abort_overdue() == [ID]
    assert bench.needed[-1].producer == (PRODUCER, LAST + 1)
    bench.markers_written()
    expected = (1000, 0) if version == 2 else (PRODUCER, LAST + 1)
    assert bench.current().producer == expected


def test_a_failed_fence_takes_no_second_epoch() -> None:
    """Before version 2 the epoch is raised at once. No producer got it, so it is used again."""
    bench = bench_with(S.ONGOING, version=1)
    bench.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert bench.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.current().producer == (PRODUCER, EPOCH + 1)
        assert bench.state() is S.ONGOING
    assert bench.end((PRODUCER, EPOCH), commits=True) == FENCED
    bench.refuses = None
    assert bench.init() == COMING
    assert bench.needed[-1].producer == (PRODUCER, EPOCH + 1)
    bench.markers_written()
    # The next fence takes a new one again.
    assert bench.init() == (PRODUCER, EPOCH + 2)
    bench.add((PRODUCER, EPOCH + 2), P0)
    assert bench.init() == COMING
    assert bench.needed[-1].producer == (PRODUCER, EPOCH + 3)


def test_a_fence_of_version_2_that_failed_leaves_everything_as_it_was() -> None:
    bench = bench_with(S.ONGOING)
    before = bench.current()
    bench.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.current() == before
    bench.refuses = None
    assert bench.end((PRODUCER, EPOCH), commits=True) == (PRODUCER, EPOCH + 1)


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("commits", [True, False])
def test_a_completion_is_retried_until_it_is_in_the_log(refusal: ErrorCode, commits: bool) -> None:
    bench = bench_with(S.PREPARE_COMMIT if commits else S.PREPARE_ABORT)
    bench.refuses = refusal
    bench.markers_written()
    for _ in range(3):
        bench.advance(COMPLETION_RETRY_MS)
        assert bench.init() == COMING
    bench.refuses = None
    bench.advance(COMPLETION_RETRY_MS)
    assert bench.state() is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
    assert bench.init() == (PRODUCER, EPOCH + 1)
    assert len(bench.needed) == 1


# Expiry

SOON = TransactionSettings(id_expiration_ms=10_000, expiry_check_interval_ms=1_000)


def test_idle_ids_expire() -> None:
    bench = Bench(settings=SOON)
    bench.init(name="a")
    bench.advance(5_000)
    bench.init(name="b")
    bench.advance(5_000)
    assert list(bench.shard.transactions) == ["b"]
    assert bench.log[-1].value is None
    bench.advance(5_000)
    assert list(bench.shard.transactions) == []
    bench.load()
    assert list(bench.shard.transactions) == []


@pytest.mark.parametrize("state", ALL_STATES)
def test_only_ids_at_rest_expire(state: TransactionState) -> None:
    bench = bench_with(state)
    bench.settings = SOON
    bench.load()
    bench.advance(60_000)
    is_at_rest = state in {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert (ID in bench.shard.transactions) is not is_at_rest


def test_requests_wait_for_an_expiring_id() -> None:
    bench = Bench(settings=SOON)
    bench.init()
    bench.holds_commits = True
    bench.advance(10_000)
    assert bench.init() == COMING
    bench.fail_all(ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.holds_commits = False
    assert bench.init() == (1000, 1)


def test_an_id_that_changes_in_time_stays() -> None:
    bench = Bench(settings=SOON)
    for epoch in range(5):
        assert bench.init() == (1000, epoch)
        bench.advance(9_000)


def test_many_ids_expire_in_portions() -> None:
    bench = Bench(settings=SOON)
    for number in range(1_200):
        bench.init(name=f"id-{number}")
    bench.advance(20_000)
    assert list(bench.shard.transactions) == []
