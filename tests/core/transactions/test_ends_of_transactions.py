"""EndTxn in every state, from every producer, of every version: the table of KIP-890 and the rules
before it.
"""

import pytest
from core.transactions.bench import ID, P0, START_MS, TIMEOUT_MS, Bench

from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction
from moldau.protocol.error_codes import ErrorCode
from moldau.types import ProducerEpoch

S = TransactionState
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
COMING = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING

EPOCH = 7
PRODUCER = 500
ALL_STATES = (
    S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT,
)  # fmt: skip


def bench_with(
    state: TransactionState, *, version: int = 2, epoch: int = EPOCH, client_version: int = 2
) -> Bench:
    """A coordinator that found this state in its log. Markers stay unwritten."""
    bench = Bench(version=version, writes_markers=False)
    is_open = state not in {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    bench.write(
        Transaction(
            transactional_id=ID,
            producer_id=PRODUCER,
            producer_epoch=ProducerEpoch(epoch),
            timeout_ms=TIMEOUT_MS,
            state=state,
            partitions=frozenset({P0} if is_open else ()),
            start_ms=-1 if state is S.EMPTY else START_MS,
            update_ms=START_MS,
            client_version=min(version, client_version),
        )
    )
    bench.load()
    return bench


OK = ProducerIdAndEpoch(PRODUCER, ProducerEpoch(EPOCH + 1))
KNOWN = ProducerIdAndEpoch(PRODUCER, ProducerEpoch(EPOCH))
RETRY, CURRENT, AHEAD, LONG_AGO = EPOCH - 1, EPOCH, EPOCH + 1, EPOCH - 2


@pytest.mark.parametrize(
    ("state", "aborts", "commits"),
    [
        # The results of a retry and of a new end.
        (S.EMPTY, (FENCED, OK), (FENCED, INVALID)),
        (S.ONGOING, (FENCED, OK), (FENCED, OK)),
        (S.PREPARE_COMMIT, (COMING, COMING), (COMING, COMING)),
        (S.PREPARE_ABORT, (COMING, COMING), (COMING, COMING)),
        (S.COMPLETE_COMMIT, (INVALID, OK), (KNOWN, INVALID)),
        (S.COMPLETE_ABORT, (KNOWN, OK), (INVALID, INVALID)),
    ],
)
def test_version_2_tells_a_retry_from_a_new_end_by_its_epoch(
    state: TransactionState,
    aborts: tuple[object, object],
    commits: tuple[object, object],
) -> None:
    for does_commit, expected in ((False, aborts), (True, commits)):
        for epoch, outcome in zip((RETRY, CURRENT), expected, strict=True):
            bench = bench_with(state)
            before = bench.current()
            assert bench.end((PRODUCER, epoch), commits=does_commit) == outcome
            if outcome != OK:
                assert bench.current() == before


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("commits", [True, False])
def test_an_older_clients_end_cannot_be_retried_by_another_producer(
    state: TransactionState, commits: bool
) -> None:
    """It raised no epoch, so the epoch before belongs to a zombie. Kafka 4.3 gives that zombie the
    present producer's epoch.
    """
    bench = bench_with(state, client_version=0)
    assert bench.end((PRODUCER, RETRY), commits=commits) == FENCED


@pytest.mark.parametrize("state", [each for each in ALL_STATES if each.text[:7] != "Prepare"])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("epoch", [AHEAD, LONG_AGO])
def test_version_2_fences_all_other_epochs(
    state: TransactionState, commits: bool, epoch: int
) -> None:
    assert bench_with(state).end((PRODUCER, epoch), commits=commits) == FENCED


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (S.EMPTY, INVALID, INVALID),
        (
            S.ONGOING,
            ProducerIdAndEpoch(-1, ProducerEpoch(-1)),
            ProducerIdAndEpoch(-1, ProducerEpoch(-1)),
        ),
        (S.PREPARE_COMMIT, COMING, COMING),
        (S.PREPARE_ABORT, COMING, COMING),
        (S.COMPLETE_COMMIT, INVALID, ProducerIdAndEpoch(-1, ProducerEpoch(-1))),
        (S.COMPLETE_ABORT, ProducerIdAndEpoch(-1, ProducerEpoch(-1)), INVALID),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_2_only_the_current_epoch_is_valid(
    state: TransactionState, abort: object, commit: object, version: int
) -> None:
    """The version that the client sends counts, not the version of the cluster."""
    for commits, expected in ((False, abort), (True, commit)):
        current = bench_with(state, version=version)
        assert current.end((PRODUCER, EPOCH), commits=commits, client_version=0) == expected
        for epoch in (RETRY, AHEAD, LONG_AGO):
            bench = bench_with(state, version=version)
            assert bench.end((PRODUCER, epoch), commits=commits, client_version=0) == FENCED


@pytest.mark.parametrize("state", ALL_STATES)
@pytest.mark.parametrize("client_version", [0, 2])
def test_another_producer_id_cannot_end_the_transaction(
    state: TransactionState, client_version: int
) -> None:
    bench = bench_with(state)
    is_pending = state in {S.PREPARE_COMMIT, S.PREPARE_ABORT}
    expected = COMING if is_pending and client_version == 2 else MAPPING
    outcome = bench.end((PRODUCER + 1, EPOCH), commits=True, client_version=client_version)
    assert outcome == expected


@pytest.mark.parametrize("client_version", [0, 2])
def test_an_unknown_id_cannot_end(client_version: int) -> None:
    bench = Bench()
    assert bench.end((1, 0), commits=True, client_version=client_version) == MAPPING


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_is_answered_when_it_is_committed_and_completed_when_markers_are(
    commits: bool,
) -> None:
    bench = bench_with(S.ONGOING)
    bench.holds_commits = True
    ticket = bench.begin_end((PRODUCER, EPOCH), commits=commits)
    assert ticket not in bench.answers
    assert bench.state() is S.ONGOING
    bench.commit_all()
    assert bench.answer(ticket) == OK
    assert bench.state() is (S.PREPARE_COMMIT if commits else S.PREPARE_ABORT)
    (needed,) = bench.needed
    assert (needed.producer, needed.commits) == (OK, commits)
    assert needed.partitions == {P0}
    assert needed.transaction_version == 2
    bench.markers_written()
    assert bench.completed == []
    bench.commit_all()
    assert bench.completed == [ID]
    assert bench.state() is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
    assert bench.current().partitions == frozenset()
    assert bench.current().producer == OK


def test_markers_of_older_clients_have_the_producers_own_epoch() -> None:
    bench = bench_with(S.ONGOING)
    bench.end((PRODUCER, EPOCH), commits=True, client_version=0)
    (needed,) = bench.needed
    assert needed.producer == KNOWN
    assert needed.transaction_version == 0


def test_an_abort_without_partitions_needs_no_markers_but_raises_the_epoch() -> None:
    bench = bench_with(S.COMPLETE_COMMIT)
    bench.now_ms += 5
    assert bench.end((PRODUCER, EPOCH), commits=False) == OK
    (needed,) = bench.needed
    assert needed.partitions == frozenset()
    assert bench.current().start_ms == bench.now_ms
    bench.markers_written()
    assert bench.state() is S.COMPLETE_ABORT


def test_a_producer_may_retry_until_it_gets_the_response() -> None:
    """It retries with the epoch that it knows, while the markers are written and afterwards."""
    bench = bench_with(S.ONGOING)
    assert bench.end((PRODUCER, EPOCH), commits=True) == OK
    assert bench.end((PRODUCER, EPOCH), commits=True) == COMING
    bench.markers_written()
    assert bench.end((PRODUCER, EPOCH), commits=True) == OK
    assert bench.end((PRODUCER, EPOCH), commits=False) == INVALID


LAST = 32_766


def test_the_last_epoch_ends_with_another_producer_id() -> None:
    bench = bench_with(S.ONGOING, epoch=LAST)
    answered = bench.end((PRODUCER, LAST), commits=True)
    assert isinstance(answered, ProducerIdAndEpoch)
    assert answered.producer_id not in {PRODUCER, -1}
    assert answered.producer_epoch == 0
    # The markers still fence a producer with the last epoch.
    assert bench.needed[-1].producer == (PRODUCER, LAST + 1)
    bench.load()
    assert bench.needed[-1].producer == (PRODUCER, LAST + 1)
    bench.markers_written()
    assert bench.current().producer == answered
    assert bench.current().previous_producer_id == PRODUCER
    # A retry over the change of ids, also at a coordinator that has just loaded it.
    for _ in range(2):
        assert bench.end((PRODUCER, LAST), commits=True) == answered
        assert bench.end((PRODUCER, LAST), commits=False) == INVALID
        bench.load()
    assert bench.end((PRODUCER, LAST - 1), commits=True) == MAPPING
    assert bench.add(answered, P0) is None
    assert bench.end((PRODUCER, LAST), commits=True) == MAPPING


def test_the_last_epoch_waits_for_an_available_producer_id() -> None:
    bench = bench_with(S.ONGOING, epoch=LAST)
    bench.has_ids = False
    answer = bench.end((PRODUCER, LAST), commits=True)
    assert answer == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.state() is S.ONGOING
    bench.has_ids = True
    assert isinstance(bench.end((PRODUCER, LAST), commits=True), ProducerIdAndEpoch)


def test_before_version_2_an_end_needs_no_other_producer_id() -> None:
    bench = bench_with(S.ONGOING, version=1, epoch=LAST)
    assert bench.end((PRODUCER, LAST), commits=True) == (-1, -1)
    bench.markers_written()
    assert bench.current().producer == (PRODUCER, LAST)


def test_an_impossible_epoch_is_resolved_by_an_abort() -> None:
    bench = bench_with(S.ONGOING, epoch=LAST + 1)
    answered = bench.end((PRODUCER, LAST + 1), commits=False)
    assert bench.needed[-1].producer == (PRODUCER, LAST + 1)
    bench.markers_written()
    assert bench.current().producer == answered
