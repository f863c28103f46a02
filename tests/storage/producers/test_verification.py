"""A batch opens a transaction on a partition only with the verification of the coordinator."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.producers.append import AppendOrigin, begin_verification
from moldau.storage.producers.entry import BatchMetadata, DataBatch, EndMarker
from moldau.storage.producers.state import ProducerStateTable
from moldau.storage.producers.verification import VERIFICATIONS_MAX, Verification
from moldau.types import NO_SEQUENCE, Offset, ProducerEpoch

PID = 7
FIRST_EPOCH = ProducerEpoch(0)
NOW_MS = 1_700_000_000_000


class Partition:
    """A table that requires verifications, and the end of its log."""

    def __init__(self) -> None:
        self.table = ProducerStateTable()
        self.table.verifies = True
        self.end = 0

    def begin(
        self, sequence: int = 0, epoch: int = 0, *, adds: bool = False, now_ms: int = NOW_MS
    ) -> Verification | None:
        batch = PID, ProducerEpoch(epoch), sequence
        return begin_verification(self.table, batch, adds=adds, now_ms=now_ms)

    def write(
        self,
        sequence: int,
        verification: Verification | None = None,
        *,
        epoch: int = 0,
        is_transactional: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> BatchMetadata | None:
        append = self.table.begin_append(origin, verification=verification)
        batch = DataBatch(
            PID,
            ProducerEpoch(epoch),
            sequence,
            Offset(self.end),
            Offset(self.end),
            NOW_MS,
            is_transactional,
        )
        duplicate = append.add_data(batch)
        if duplicate is None:
            self.table.apply(append)
            self.end += 1
        return duplicate

    def mark(self, epoch: int = 0, *, version: int = 1) -> None:
        append = self.table.begin_append(AppendOrigin.COORDINATOR, transaction_version=version)
        append.add_marker(
            EndMarker(PID, ProducerEpoch(epoch), Offset(self.end), NOW_MS, 0, is_abort=False)
        )
        self.table.apply(append)
        for completed in append.completed:
            self.table.complete_transaction(completed)
        self.end += 1


def refused(code: ErrorCode) -> "pytest.RaisesExc[KafkaError]":
    return pytest.raises(KafkaError, match=code.name)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_transaction_is_opened_with_its_verification_only(origin: AppendOrigin) -> None:
    partition = Partition()
    sequence = 0 if origin is AppendOrigin.CLIENT else NO_SEQUENCE
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(sequence, origin=origin)
    verification = partition.begin(sequence)
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(sequence, origin=origin)
    assert partition.table.entry(PID) is None
    partition.write(sequence, verification, origin=origin)
    assert partition.table.has_open_transaction(PID, ProducerEpoch(0))


def test_an_open_transaction_needs_no_further_verification() -> None:
    partition = Partition()
    partition.write(0, partition.begin())
    assert partition.begin(1) is None
    partition.write(1)
    assert len(partition.table.verifications) == 0


def test_a_follower_does_not_verify_again_what_its_leader_appended() -> None:
    partition = Partition()
    partition.write(0, origin=AppendOrigin.REPLICATION)
    assert partition.table.has_open_transaction(PID, ProducerEpoch(0))


def test_a_verification_is_void_after_the_end_of_its_transaction() -> None:
    """The coordinator agreed, then the transaction was aborted, and only then the batch arrived."""
    partition = Partition()
    late = partition.begin()
    partition.mark()
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(0, late)
    next_one = partition.begin()
    assert next_one is not late
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(0, late)
    partition.write(0, next_one)


def test_a_late_batch_of_an_ended_transaction_opens_nothing() -> None:
    partition = Partition()
    partition.write(0, partition.begin())
    partition.mark()
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(1)
    assert not partition.table.has_open_transaction(PID, ProducerEpoch(0))
    assert partition.table.first_undecided_offset is None


def test_the_marker_before_does_not_end_a_verification_of_the_new_protocol() -> None:
    """Its epoch is that of the next transaction."""
    partition = Partition()
    partition.write(0, partition.begin(adds=True))
    verification = partition.begin(0, epoch=1, adds=True)
    partition.mark(epoch=1, version=2)
    partition.write(0, verification, epoch=1)
    assert partition.table.has_open_transaction(PID, ProducerEpoch(1))


def test_the_marker_of_its_own_transaction_ends_it() -> None:
    partition = Partition()
    verification = partition.begin(adds=True)
    partition.mark(epoch=1, version=2)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.write(0, verification)
    assert partition.begin(0, epoch=1, adds=True) is not verification


def test_an_end_of_the_old_protocol_ends_a_verification_of_the_new_one_too() -> None:
    """A client whose writes add partitions may still end the transaction with the old protocol."""
    partition = Partition()
    verification = partition.begin(adds=True)
    partition.mark(epoch=0, version=0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(0, verification)
    assert partition.table.first_undecided_offset is None


def test_a_fenced_producer_is_refused_without_a_request_to_the_coordinator() -> None:
    partition = Partition()
    partition.mark(epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.begin(epoch=2)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.write(0, epoch=2)


def test_a_retry_of_an_appended_batch_needs_no_verification() -> None:
    partition = Partition()
    partition.write(0, partition.begin())
    partition.mark()
    assert partition.write(0) == BatchMetadata(0, 0, Offset(0), Offset(0), NOW_MS)


def test_a_batch_does_not_overtake_one_that_waits_for_its_verification() -> None:
    partition = Partition()
    verification = partition.begin(2)
    assert partition.begin(3) is verification
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.write(3, verification)
    assert partition.begin(1) is verification
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.write(2, verification)
    partition.write(1, verification)
    partition.write(2)


def test_a_new_epoch_forgets_the_waiting_batches_of_the_old_one() -> None:
    partition = Partition()
    verification = partition.begin(0)
    assert partition.begin(5, epoch=1) is verification
    partition.write(5, verification, epoch=1)


def test_an_unknown_producer_of_the_new_protocol_begins_with_sequence_zero() -> None:
    partition = Partition()
    verification = partition.begin(4, adds=True)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.write(4, verification)
    older = Partition()
    older.write(4, older.begin(4))


def test_without_verification_any_transaction_may_open() -> None:
    partition = Partition()
    partition.table.verifies = False
    partition.write(0)
    assert partition.table.has_open_transaction(PID, ProducerEpoch(0))


def test_plain_batches_are_not_held_up_by_the_verification_of_another_producer() -> None:
    partition = Partition()
    begin_verification(partition.table, (8, FIRST_EPOCH, 0), adds=False, now_ms=NOW_MS)
    partition.write(3, is_transactional=False)
    partition.write(4, is_transactional=False)
    assert partition.end == 2
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(5)


def test_verifications_without_a_write_expire() -> None:
    partition = Partition()
    verification = partition.begin()
    partition.table.expire(NOW_MS + partition.table.expiration_ms - 1)
    assert partition.begin() is verification
    partition.table.expire(NOW_MS + partition.table.expiration_ms)
    assert partition.begin() is not verification


def test_verifications_are_bounded_and_the_oldest_is_dropped_first() -> None:
    partition = Partition()
    verification = partition.begin()
    for producer_id in range(100, 100 + VERIFICATIONS_MAX):
        begin_verification(
            partition.table, (producer_id, FIRST_EPOCH, 0), adds=False, now_ms=NOW_MS
        )
    assert len(partition.table.verifications) == VERIFICATIONS_MAX
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.write(0, verification)


# All events in any order


class Coordinated:
    """A partition, its coordinator, and a producer whose requests may arrive late."""

    def __init__(self, *, adds: bool) -> None:
        self.partition = Partition()
        self._adds = adds
        self._epoch = 0
        self._state = "idle"
        self._late: list[tuple[int, Verification | None, bool]] = []
        """(epoch, verification, whether the coordinator agreed) of batches in flight."""

    def take(self, step: str) -> None:
        getattr(self, f"_{step}")()
        if self._state == "idle":
            assert self.partition.table.first_undecided_offset is None, "the transaction hangs"

    def _add(self) -> None:
        if not self._adds and self._state == "idle":
            self._state = "open"

    def _verify(self) -> None:
        """A batch arrives, and the coordinator is requested to verify it."""
        epoch = self._epoch
        verification = self.partition.begin(NO_SEQUENCE, epoch, adds=self._adds)
        if verification is None:
            self._late.append((epoch, None, True))
            return
        if self._adds and self._state == "idle":
            self._state = "open"
        self._late.append((epoch, verification, self._state == "open"))

    def _write(self) -> None:
        """The oldest waiting batch is appended."""
        if not self._late:
            return
        epoch, verification, is_agreed = self._late.pop(0)
        if is_agreed:
            with contextlib.suppress(KafkaError):
                self.partition.write(
                    NO_SEQUENCE, verification, epoch=epoch, origin=AppendOrigin.COORDINATOR
                )

    def _shuffle(self) -> None:
        self._late.reverse()

    def _end(self) -> None:
        """The end is decided and reported to the producer; the marker is still to come."""
        if self._state == "open":
            self._state = "ending"
            self._epoch += self._adds

    def _mark(self) -> None:
        if self._state == "ending":
            self._state = "idle"
            self.partition.mark(self._epoch, version=2 if self._adds else 1)


@pytest.mark.parametrize("adds", [False, True], ids=["old protocol", "new protocol"])
@given(
    steps=st.lists(
        st.sampled_from(["add", "verify", "write", "shuffle", "end", "mark"]),
        min_size=40,
        max_size=80,
    )
)
@settings(max_examples=300, deadline=None)
def test_nothing_is_open_once_the_coordinator_is_done(adds: bool, steps: list[str]) -> None:
    coordinated = Coordinated(adds=adds)
    for step in steps:
        coordinated.take(step)


def test_a_late_batch_of_an_earlier_epoch_does_not_change_what_waits() -> None:
    log = Partition()
    first = log.begin(sequence=3, epoch=2)
    assert first is not None
    assert log.begin(sequence=0, epoch=1) is first
    assert (first.epoch, first.lowest_sequence) == (2, 3)
    assert log.begin(sequence=1, epoch=2) is first
    assert first.lowest_sequence == 1
