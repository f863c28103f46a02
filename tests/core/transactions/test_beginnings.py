"""InitProducerId: a producer takes over its transactional id, or continues with it (KIP-360)."""

import pytest
from core.transactions.bench import ID, P0, P1, TIMEOUT_MS, Bench
from core.transactions.test_ends_of_transactions import EPOCH, LAST, PRODUCER, bench_with

from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch
from moldau.protocol.error_codes import ErrorCode
from moldau.types import ProducerEpoch

S = TransactionState
FENCED = ErrorCode.PRODUCER_FENCED
COMING = ErrorCode.CONCURRENT_TRANSACTIONS
AT_REST = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


def next_of(epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(PRODUCER, ProducerEpoch(epoch + 1))


def test_a_new_id_gets_a_producer_id_and_its_first_epoch() -> None:
    bench = Bench()
    answer = bench.init()
    assert answer == (1000, 0)
    assert bench.state() is S.EMPTY
    assert bench.current().timeout_ms == TIMEOUT_MS


def test_a_new_id_is_unknown_before_it_is_committed() -> None:
    bench = Bench(holds_commits=True)
    ticket = bench.begin_init()
    assert ticket not in bench.answers
    assert bench.init() == COMING
    assert ID not in bench.shard.transactions
    bench.commit_all()
    assert bench.answer(ticket) == (1000, 0)


@pytest.mark.parametrize("state", AT_REST)
def test_the_next_producer_gets_the_next_epoch(state: TransactionState) -> None:
    bench = bench_with(state)
    assert bench.init() == next_of(EPOCH)
    assert bench.state() is S.EMPTY
    assert bench.add((PRODUCER, EPOCH)) == FENCED
    assert bench.end((PRODUCER, EPOCH), commits=False, client_version=0) == FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_decided_transaction_is_waited_for(state: TransactionState) -> None:
    bench = bench_with(state)
    assert bench.init() == COMING
    bench.markers_written()
    assert bench.init() == next_of(EPOCH)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(version: int) -> None:
    """With an epoch that no producer gets, so the next producer's epoch is two higher."""
    bench = bench_with(S.ONGOING, version=version)
    assert bench.init() == COMING
    assert bench.state() is S.PREPARE_ABORT
    (needed,) = bench.needed
    assert (needed.producer, needed.commits) == (next_of(EPOCH), False)
    assert needed.transaction_version == (2 if version == 2 else 0)
    assert bench.init() == COMING
    bench.markers_written()
    assert bench.init() == next_of(EPOCH + 1)


def test_the_old_producer_is_fenced_while_its_transaction_is_aborted() -> None:
    for version in (0, 1, 2):
        bench = bench_with(S.ONGOING, version=version)
        bench.init()
        bench.holds_commits = True
        expected = FENCED if version < 2 else COMING
        assert bench.end((PRODUCER, EPOCH), commits=True) == expected
        assert bench.add((PRODUCER, EPOCH), P1) == COMING


@pytest.mark.parametrize("state", AT_REST)
def test_a_continuing_producer_gets_the_next_epoch_and_the_same_on_a_retry(
    state: TransactionState,
) -> None:
    bench = bench_with(state)
    assert bench.init((PRODUCER, EPOCH)) == next_of(EPOCH)
    assert bench.init((PRODUCER, EPOCH)) == next_of(EPOCH)
    assert bench.init((PRODUCER, EPOCH + 1)) == next_of(EPOCH + 1)
    assert bench.init((PRODUCER, EPOCH)) == FENCED


def test_a_continuing_producer_is_fenced_if_another_has_started() -> None:
    bench = bench_with(S.EMPTY)
    assert bench.init() == next_of(EPOCH)
    for epoch in (EPOCH, EPOCH - 1, EPOCH + 2):
        assert bench.init((PRODUCER, epoch)) == FENCED
    assert bench.init((PRODUCER + 1, EPOCH + 1)) == FENCED
    assert bench.init((PRODUCER, EPOCH + 1)) == next_of(EPOCH + 1)


def test_a_retry_at_a_coordinator_that_has_just_loaded_is_fenced() -> None:
    """As in Kafka, the last epoch is not in the log."""
    bench = bench_with(S.EMPTY)
    bench.init((PRODUCER, EPOCH))
    bench.load()
    assert bench.init((PRODUCER, EPOCH)) == FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_continuing_aborts_an_open_transaction(version: int) -> None:
    bench = bench_with(S.ONGOING, version=version)
    assert bench.init((PRODUCER, EPOCH)) == COMING
    bench.markers_written()
    # Version 2 raises the producer's own epoch; before that no producer had the raised one.
    expected = next_of(EPOCH) if version == 2 else FENCED
    assert bench.init((PRODUCER, EPOCH)) == expected


def test_an_unknown_producer_continues_with_a_new_id() -> None:
    """Its transactional id has expired meanwhile."""
    assert Bench().init((77, 12)) == (1000, 0)


@pytest.mark.parametrize("continues", [True, False])
def test_exhausted_epochs_restart_with_a_new_producer_id(continues: bool) -> None:
    bench = bench_with(S.COMPLETE_COMMIT, epoch=LAST)
    expected = (PRODUCER, LAST) if continues else None
    assert bench.init(expected) == (1000, 0)
    assert bench.current().previous_producer_id == PRODUCER
    # It retries with its old id and epoch.
    if continues:
        assert bench.init(expected) == (1000, 0)
    else:
        assert bench.init((PRODUCER, LAST)) == FENCED
    assert bench.init((PRODUCER, LAST - 1)) == FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_the_last_epoch_leaves_room_for_the_next_producer(version: int) -> None:
    bench = bench_with(S.ONGOING, version=version, epoch=LAST)
    assert bench.init() == COMING
    assert bench.needed[-1].producer == (PRODUCER, LAST + 1)
    bench.markers_written()
    answer = bench.init()
    assert isinstance(answer, ProducerIdAndEpoch)
    assert answer.producer_id >= 1000
    # Version 2 has begun the new id with the abort, and the next producer takes its second epoch.
    assert answer.producer_epoch == (1 if version == 2 else 0)


def test_a_stale_epoch_of_an_exhausted_id_is_fenced() -> None:
    bench = bench_with(S.EMPTY, epoch=LAST - 1)
    assert bench.init((PRODUCER, LAST - 1)) == (PRODUCER, LAST)
    assert bench.init((PRODUCER, LAST - 1)) == (PRODUCER, LAST)
    assert bench.init((PRODUCER, LAST - 5)) == FENCED


def test_a_new_id_waits_for_an_available_producer_id() -> None:
    bench = Bench(has_ids=False)
    assert bench.init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.log == []


def test_the_timeout_is_that_of_the_last_producer() -> None:
    bench = Bench()
    bench.begin_init(timeout_ms=5)
    assert bench.current().timeout_ms == 5
    bench.begin_init(timeout_ms=7)
    assert bench.current().timeout_ms == 7
    assert bench.add((1000, 1), P0) is None
    assert bench.current().timeout_ms == 7
