"""The promises of a log to its idempotent and transactional producers."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.producers.entry import (
    SEQUENCE_MAX,
    BatchMetadata,
    DataBatch,
    EndMarker,
    ProducerEntry,
    decrement_sequence,
    increment_sequence,
)
from moldau.storage.producers.state import (
    PRODUCER_ID_EXPIRATION_MS,
    AppendOrigin,
    CompletedTransaction,
    ProducerStateTable,
)
from moldau.types import Offset, ProducerEpoch

PID = 7
NOW_MS = 1_700_000_000_000


class Partition:
    """A table and the log end that goes with it: batches get consecutive offsets."""

    def __init__(self, table: ProducerStateTable | None = None) -> None:
        self.table = ProducerStateTable() if table is None else table
        self.end = 0

    def write(
        self,
        sequence: int,
        count: int = 1,
        *,
        producer_id: int = PID,
        epoch: int = 0,
        transactional: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int = NOW_MS,
    ) -> BatchMetadata | None:
        append = self.table.begin_append(origin)
        duplicate = append.add_data(
            DataBatch(
                producer_id,
                ProducerEpoch(epoch),
                sequence,
                Offset(self.end),
                Offset(self.end + count - 1),
                now_ms,
                transactional,
            )
        )
        if duplicate is None:
            self.table.apply(append)
            self.end += count
            self.table.end_offset = Offset(self.end)
        return duplicate

    def end_transaction(
        self,
        *,
        abort: bool = False,
        producer_id: int = PID,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 0,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
    ) -> tuple[CompletedTransaction, int] | None:
        """Returns the completed transaction and the last stable offset of its index entry."""
        append = self.table.begin_append(origin, transaction_version=version)
        append.add_marker(
            EndMarker(
                producer_id,
                ProducerEpoch(epoch),
                Offset(self.end),
                NOW_MS,
                coordinator_epoch,
                abort,
            )
        )
        self.table.apply(append)
        self.end += 1
        self.table.end_offset = Offset(self.end)
        found = None
        for completed in append.completed:
            found = completed, self.table.last_stable_offset_after(completed)
            self.table.complete_transaction(completed)
        return found

    def known(self, producer_id: int = PID) -> ProducerEntry:
        entry = self.table.entry(producer_id)
        assert entry is not None
        return entry


def refused(code: ErrorCode) -> "pytest.RaisesExc[KafkaError]":
    return pytest.raises(KafkaError, match=code.name)


# Sequences


def test_consecutive_sequences_are_accepted_and_a_gap_is_out_of_order() -> None:
    log = Partition()
    log.write(0, 3)
    log.write(3, 2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(6)
    assert log.known().last_sequence == 4


def test_a_retry_of_any_of_the_last_five_batches_gets_its_old_offsets() -> None:
    log = Partition()
    for number in range(7):
        log.write(number * 2, 2)
    for number in range(2, 7):
        duplicate = log.write(number * 2, 2)
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (number * 2, number * 2 + 1)
    assert log.end == 14


def test_a_retry_older_than_five_batches_is_out_of_order() -> None:
    log = Partition()
    for number in range(6):
        log.write(number)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(0)


def test_a_retry_with_another_size_is_not_a_duplicate() -> None:
    log = Partition()
    log.write(0, 3)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(0, 2)


def test_sequences_wrap_after_the_largest_int32() -> None:
    log = Partition()
    log.write(SEQUENCE_MAX - 1, 3)
    assert log.known().last_sequence == 0
    log.write(1)
    duplicate = log.write(SEQUENCE_MAX - 1, 3)
    assert duplicate is not None
    assert duplicate.first_offset == 0


def test_zero_follows_the_largest_sequence() -> None:
    log = Partition()
    log.write(SEQUENCE_MAX - 1, 2)
    log.write(0)
    assert log.known().last_sequence == 0


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, 10_000))
def test_sequence_steps_can_be_undone(sequence: int, by: int) -> None:
    assert decrement_sequence(increment_sequence(sequence, by), by) == sequence
    assert 0 <= increment_sequence(sequence, by) <= SEQUENCE_MAX


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    """Its earlier records may have been deleted by retention."""
    log = Partition()
    log.write(42)
    log.write(43)
    assert log.known().last_sequence == 43


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    log = Partition()
    log.write(0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(1, epoch=1)
    log.write(0, epoch=1)
    log.write(1, epoch=1)


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    log = Partition()
    log.write(0)
    log.write(0, epoch=1)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.write(0, epoch=0)
    assert len(log.known().batches) == 1


def test_an_old_epoch_is_fenced_for_clients_and_coordinators_but_not_for_replication() -> None:
    log = Partition()
    log.write(0, epoch=3)
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER):
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            log.write(1, epoch=2, origin=origin)
    log.write(1, epoch=2, origin=AppendOrigin.REPLICATION)
    assert log.known().epoch == 2


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR])
def test_only_clients_have_their_sequences_checked(origin: AppendOrigin) -> None:
    log = Partition()
    log.write(0, origin=origin)
    assert log.write(0, origin=origin) is None
    log.write(9, origin=origin)


def test_offset_commits_of_a_transaction_have_no_sequence() -> None:
    log = Partition()
    log.write(-1, 2, transactional=True, origin=AppendOrigin.COORDINATOR)
    log.write(-1, transactional=True, origin=AppendOrigin.COORDINATOR)
    assert log.known().last_sequence == -1
    assert log.known().last_data_offset == 2


def test_a_refused_append_changes_nothing() -> None:
    log = Partition()
    log.write(0, 3)
    before = log.known().copy()
    for sequence, epoch in ((5, 0), (3, -1), (1, 1)):
        with pytest.raises(KafkaError):
            log.write(sequence, epoch=epoch)
    assert log.known() == before


def test_an_append_that_was_never_written_changes_nothing() -> None:
    log = Partition()
    log.write(0)
    append = log.table.begin_append(AppendOrigin.CLIENT)
    append.add_data(DataBatch(PID, ProducerEpoch(0), 1, Offset(1), Offset(1), NOW_MS, True))
    assert log.known().last_sequence == 0
    assert log.table.first_unstable_offset is None


def test_later_batches_of_one_append_are_checked_against_the_earlier_ones() -> None:
    log = Partition()
    log.write(0)
    append = log.table.begin_append(AppendOrigin.CLIENT)
    append.add_data(DataBatch(PID, ProducerEpoch(0), 1, Offset(1), Offset(2), NOW_MS, False))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append.add_data(DataBatch(PID, ProducerEpoch(0), 5, Offset(3), Offset(3), NOW_MS, False))
    append.add_data(DataBatch(PID, ProducerEpoch(0), 3, Offset(3), Offset(3), NOW_MS, False))
    log.table.apply(append)
    assert log.known().last_sequence == 3


# Transactions


def test_a_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated() -> None:
    log = Partition()
    log.write(0, 2)
    log.write(2, 3, transactional=True)
    assert log.table.first_unstable_offset == 2
    assert log.table.last_stable_offset(high_watermark=Offset(5)) == 2

    completed = log.end_transaction()
    assert completed == (CompletedTransaction(PID, Offset(2), Offset(5), is_aborted=False), 6)
    assert log.table.first_undecided_offset is None
    assert log.table.last_stable_offset(high_watermark=Offset(5)) == 2

    log.table.on_high_watermark(Offset(6))
    assert log.table.first_unstable_offset is None
    assert log.table.last_stable_offset(high_watermark=6) == 6


def test_the_index_entry_of_an_abort_names_the_next_open_transaction() -> None:
    log = Partition()
    log.write(0, producer_id=1, transactional=True)
    log.write(0, producer_id=2, transactional=True)
    found = log.end_transaction(producer_id=1, abort=True)
    assert found == (CompletedTransaction(1, Offset(0), Offset(2), is_aborted=True), 1)
    found = log.end_transaction(producer_id=2, abort=True)
    assert found == (CompletedTransaction(2, Offset(1), Offset(3), is_aborted=True), 4)


def test_a_marker_without_data_completes_nothing_but_fences() -> None:
    log = Partition()
    assert log.end_transaction(epoch=5) is None
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.write(0, epoch=4)


def test_a_plain_write_inside_an_open_transaction_is_refused() -> None:
    log = Partition()
    log.write(0, transactional=True)
    for origin in (AppendOrigin.CLIENT, AppendOrigin.REPLICATION):
        with refused(ErrorCode.INVALID_TXN_STATE):
            log.write(1, origin=origin)
    log.end_transaction()
    log.write(1)


def test_sequences_continue_after_a_marker_of_the_same_epoch() -> None:
    log = Partition()
    log.write(0, 2, transactional=True)
    log.end_transaction()
    log.write(2, transactional=True)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(7, transactional=True)


def test_a_marker_of_a_new_epoch_restarts_the_sequences() -> None:
    log = Partition()
    log.write(0, 2, transactional=True)
    log.end_transaction(epoch=1, version=2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.write(2, epoch=1, transactional=True)
    log.write(0, epoch=1, transactional=True)


def test_an_old_coordinator_is_fenced() -> None:
    log = Partition()
    log.write(0, transactional=True)
    log.end_transaction(coordinator_epoch=4)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        log.end_transaction(coordinator_epoch=3)
    log.end_transaction(coordinator_epoch=3, origin=AppendOrigin.REPLICATION, version=-1)


def test_an_old_marker_is_fenced() -> None:
    log = Partition()
    log.write(0, epoch=4, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.end_transaction(epoch=3)


def test_from_version_two_a_marker_needs_a_higher_epoch_than_the_open_transaction() -> None:
    log = Partition()
    log.write(0, epoch=4, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.end_transaction(epoch=4, version=2)
    assert log.end_transaction(epoch=5, version=2) is not None


def test_from_version_two_a_retried_marker_is_accepted_when_nothing_is_open() -> None:
    log = Partition()
    log.write(0, epoch=4, transactional=True)
    log.end_transaction(epoch=5, version=2)
    assert log.end_transaction(epoch=5, version=2) is None
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.end_transaction(epoch=4, version=2)


def test_a_transaction_in_the_last_epoch_can_still_be_ended() -> None:
    log = Partition()
    log.write(0, epoch=2**15 - 1, transactional=True)
    assert log.end_transaction(epoch=2**15 - 1, version=2) is not None


def test_a_transaction_may_begin_and_end_in_one_replicated_append() -> None:
    table = ProducerStateTable()
    append = table.begin_append(AppendOrigin.REPLICATION)
    append.add_data(DataBatch(PID, ProducerEpoch(0), 0, Offset(0), Offset(4), NOW_MS, True))
    completed = append.add_marker(EndMarker(PID, ProducerEpoch(0), Offset(5), NOW_MS, 0, True))
    assert completed == CompletedTransaction(PID, Offset(0), Offset(5), is_aborted=True)
    table.apply(append)
    assert table.first_undecided_offset == 0
    assert completed is not None
    table.complete_transaction(completed)
    assert table.first_undecided_offset is None
    assert table.first_unstable_offset == 0


def test_a_hanging_transaction_is_reported() -> None:
    log = Partition()
    log.write(0, transactional=True)
    timeout_ms, buffer_ms = 60_000, 300_000
    late_ms = NOW_MS + timeout_ms + buffer_ms
    table = log.table
    assert not table.has_late_transaction(late_ms, transaction_timeout_max_ms=timeout_ms)
    assert table.has_late_transaction(late_ms + 1, transaction_timeout_max_ms=timeout_ms)
    log.end_transaction()
    assert not table.has_late_transaction(late_ms + 1, transaction_timeout_max_ms=timeout_ms)


# Memory


def test_idle_ids_expire_after_a_day_and_open_transactions_never() -> None:
    log = Partition()
    log.write(0, producer_id=1)
    log.write(0, producer_id=2, transactional=True)
    log.table.expire(NOW_MS + PRODUCER_ID_EXPIRATION_MS - 1)
    assert set(log.table.active_producers) == {1, 2}
    log.table.expire(NOW_MS + PRODUCER_ID_EXPIRATION_MS)
    assert set(log.table.active_producers) == {2}


def test_the_table_is_bounded_and_forgets_the_least_recently_used() -> None:
    log = Partition(ProducerStateTable(producer_ids_max=3))
    for producer_id in (1, 2, 3):
        log.write(0, producer_id=producer_id)
    log.write(1, producer_id=1)
    log.write(0, producer_id=4)
    assert set(log.table.active_producers) == {3, 1, 4}


def test_an_open_transaction_is_never_forgotten() -> None:
    log = Partition(ProducerStateTable(producer_ids_max=2))
    log.write(0, producer_id=1, transactional=True)
    for producer_id in range(2, 10):
        log.write(0, producer_id=producer_id)
    assert set(log.table.active_producers) == {1, 9}
    log.end_transaction(producer_id=1)
    log.write(0, producer_id=10)
    assert set(log.table.active_producers) == {1, 10}


def test_loading_more_than_the_bound_keeps_the_youngest() -> None:
    entries = []
    for producer_id in (1, 2, 3, 4):
        entry = ProducerEntry(producer_id)
        entry.epoch, entry.last_timestamp_ms = ProducerEpoch(0), NOW_MS - producer_id
        entries.append(entry)
    table = ProducerStateTable(producer_ids_max=2)
    table.load(entries, end_offset=Offset(9), now_ms=NOW_MS)
    assert set(table.active_producers) == {1, 2}
    assert table.end_offset == 9


# Against a plain model


def steps() -> st.SearchStrategy[list[tuple[str, int]]]:
    kinds = st.sampled_from(["write", "transact", "commit", "abort", "replicate"])
    return st.lists(st.tuples(kinds, st.integers(1, 4)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(steps())
def test_the_first_unstable_offset_is_that_of_the_oldest_unreplicated_transaction(
    script: list[tuple[str, int]],
) -> None:
    log = Partition()
    sequences = dict.fromkeys(range(1, 5), 0)
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for kind, producer_id in script:
        is_open = producer_id in open_since
        if kind in {"write", "transact"} and (kind == "transact" or not is_open):
            if kind == "transact":
                open_since.setdefault(producer_id, log.end)
            log.write(
                sequences[producer_id], producer_id=producer_id, transactional=kind == "transact"
            )
            sequences[producer_id] += 1
        elif kind in {"commit", "abort"}:
            marker_offset = log.end
            log.end_transaction(producer_id=producer_id, abort=kind == "abort")
            if is_open:
                ended.append((open_since.pop(producer_id), marker_offset))
        elif kind == "replicate":
            high_watermark = max(high_watermark, log.end - producer_id)
            log.table.on_high_watermark(Offset(high_watermark))
        unreplicated = [first for first, last in ended if last >= high_watermark]
        expected = min([*open_since.values(), *unreplicated], default=None)
        assert log.table.first_unstable_offset == expected
        assert log.table.first_undecided_offset == min(open_since.values(), default=None)


def accepted_by_kafka_rules(script: list[tuple[int, int]]) -> Iterator[str]:
    """The sequence rules in their plainest form: 'ok', 'duplicate' or an error name."""
    epoch, remembered = -1, list[tuple[int, int]]()
    for batch_epoch, sequence in script:
        if batch_epoch == epoch and (epoch, sequence) in remembered[-5:]:
            yield "duplicate"
        elif batch_epoch < epoch:
            yield "INVALID_PRODUCER_EPOCH"
        elif epoch >= 0 and sequence != (remembered[-1][1] + 1 if batch_epoch == epoch else 0):
            yield "OUT_OF_ORDER_SEQUENCE_NUMBER"
        else:
            if batch_epoch > epoch:
                epoch, remembered = batch_epoch, []
            remembered.append((epoch, sequence))
            yield "ok"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=40))
def test_answers_to_single_record_batches_follow_the_rules(script: list[tuple[int, int]]) -> None:
    log = Partition()
    answers = []
    for epoch, sequence in script:
        try:
            answers.append("ok" if log.write(sequence, epoch=epoch) is None else "duplicate")
        except KafkaError as error:
            answers.append(error.code.name)
    assert answers == list(accepted_by_kafka_rules(script))
