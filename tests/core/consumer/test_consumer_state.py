"""Positions, resets, fetch sessions and automatic commits."""

from typing import TYPE_CHECKING

import pytest

from moldau.core.consumer.commits import AutoCommit
from moldau.core.consumer.fetch_sessions import FetchRow, FetchSession
from moldau.core.consumer.fetched import DamagedBatchError, Fetched, FetchedBytes
from moldau.core.consumer.positions import OffsetAndMetadata, PartitionState, Positions
from moldau.core.consumer.resets import EARLIEST, ResetKind, parse_reset
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.protocol.records.record import Record
from moldau.types import BrokerId, Offset, ProducerEpoch, TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.protocol.records.record_loops import ConsumerRecord

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ID = Uuid(bytes(15) + b"\1")
NEW_ID = Uuid(bytes(15) + b"\2")


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT3H4M5.5S", 183_845_500),
    ],
)
def test_durations_are_read(text: str, duration_ms: int) -> None:
    policy = parse_reset(text)
    assert (policy.kind, policy.timestamp(200_000_000)) == (
        ResetKind.BY_DURATION,
        200_000_000 - duration_ms,
    )


@pytest.mark.parametrize("text", ["", "newest", "by_duration:", "by_duration:P", "by_duration:1H"])
def test_other_resets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not latest"):
        parse_reset(text)


def test_a_seek_makes_pending_fetches_stale() -> None:
    state = PartitionState(A0)
    state.seek(5)
    version = state.version
    state.seek(7, epoch=2)
    assert state.version != version
    assert (state.position, state.fetch_offset, state.must_validate) == (7, 7, True)
    state.request_reset(EARLIEST)
    assert (state.position, state.can_fetch) == (None, False)


def test_only_read_positions_are_validated_with_a_new_leader() -> None:
    state = PartitionState(A0)
    state.seek(5)
    state.leader_changed(3, ID)
    assert not state.must_validate
    state.fetch_epoch = 3
    state.leader_changed(3, ID)
    assert not state.must_validate
    state.leader_changed(4, ID)
    assert state.must_validate


def test_a_recreated_topic_starts_with_new_epochs() -> None:
    state = PartitionState(A0)
    state.seek(5)
    state.leader_changed(7, ID)
    state.fetch_epoch = 7
    state.leader_changed(0, NEW_ID)
    assert (state.leader_epoch, state.fetch_epoch, state.must_validate) == (0, -1, False)


def test_prefetched_records_can_be_discarded() -> None:
    state = PartitionState(A0)
    state.seek(5)
    version = state.version
    state.fetch_offset, state.fetch_epoch = 90, 3
    state.rewind()
    assert (state.position, state.fetch_offset, state.fetch_epoch) == (5, 5, -1)
    assert state.version != version


def test_partitions_that_stay_assigned_keep_their_position() -> None:
    positions = Positions()
    (first,) = positions.assign([A0])
    first.seek(9)
    assert [state.partition for state in positions.assign([A0, A1])] == [A1]
    assert positions.consumed() == {A0: OffsetAndMetadata(9)}
    positions.assign([A1])
    assert A0 not in positions


def row(offset: int, topic_id: Uuid = ID) -> FetchRow:
    return FetchRow(topic_id, offset, 0, 0, 100)


def test_a_session_sends_only_changes() -> None:
    session = FetchSession()
    first = session.plan({A0: row(0), A1: row(0)})
    assert (first.session_id, first.epoch, set(first.rows)) == (0, 0, {A0, A1})
    session.answered(77)
    second = session.plan({A0: row(5), A1: row(0)})
    assert second == (77, 1, {A0: row(5)}, {})
    session.answered(77)
    third = session.plan({A0: row(5)})
    assert third == (77, 2, {}, {A1: ID})
    session.answered(77)
    assert session.plan({A0: row(0, NEW_ID)}) == (77, 3, {A0: row(0, NEW_ID)}, {A0: ID})


def test_a_session_restarts_after_an_error() -> None:
    session = FetchSession()
    session.plan({A0: row(0)})
    session.answered(77)
    session.reset()
    assert session.plan({A0: row(0)}) == (77, 0, {A0: row(0)}, {})
    session.reset(is_gone=True)
    assert session.plan({A0: row(0)}).session_id == 0
    session.answered(0)
    assert session.plan({A0: row(0)}).is_full


def test_positions_are_committed_when_they_are_due_and_changed() -> None:
    auto = AutoCommit(is_enabled=True, interval_ms=100)
    assert not auto.is_due(1e9)
    auto.start(0)
    assert (auto.is_due(99), auto.is_due(100)) == (False, True)
    consumed = {A0: OffsetAndMetadata(5)}
    assert auto.changed(consumed) == consumed
    auto.sent(100)
    auto.committed(consumed)
    assert auto.changed(consumed) == {}
    auto.failed(110, 20)
    assert auto.is_due(130)
    auto.keep_only([A1])
    assert auto.changed(consumed) == consumed
    off = AutoCommit(is_enabled=False, interval_ms=100)
    off.start(0)
    assert not off.is_due(1e9)


# Fetched records.


def batch(offsets: range, **options: object) -> bytes:
    records = [Record(offset, 1, None, b"%d" % offset) for offset in offsets]
    return bytes(build_batch(records, BatchOptions(**options)))  # type: ignore[arg-type]


def taken(fetched: Fetched, step: int = 3) -> list[int]:
    found: list[ConsumerRecord] = []
    while fetched.take(found, step, (None, None)):
        pass
    return [record.offset for record in found]


def state_at(offset: int) -> PartitionState:
    state = PartitionState(A0)
    state.seek(offset)
    return state


def test_a_fetch_from_the_middle_of_a_batch_begins_there() -> None:
    state = state_at(4)
    content = batch(range(10)) + batch(range(10, 13)) + batch(range(13, 20))[:-1]
    fetched = Fetched(state, FetchedBytes(buffer=content))
    state.arrived(fetched.size_bytes)
    assert fetched.next_offset == 13
    assert taken(fetched) == list(range(4, 13))
    assert (state.position, state.buffered_bytes) == (13, 0)


def test_aborted_records_are_skipped() -> None:
    transactional = {"is_transactional": True, "producer_epoch": 0}
    marker = EndTransactionMarker(ControlType.ABORT, 0)
    content = (
        batch(range(2), producer_id=1, base_sequence=0, **transactional)
        + batch(range(2, 4), producer_id=2, base_sequence=0, **transactional)
        + end_transaction_marker(marker, MarkerOrigin(1, ProducerEpoch(0), 4), 1)
        + batch(range(5, 6), producer_id=1, base_sequence=2, **transactional)
    )
    fetched = Fetched(state_at(0), FetchedBytes(buffer=content, aborted=[(1, 0)]))
    assert taken(fetched) == [2, 3, 5]
    assert taken(Fetched(state_at(0), FetchedBytes(buffer=content))) == [0, 1, 2, 3, 5]


def test_a_position_moves_past_invisible_records() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    content = end_transaction_marker(marker, MarkerOrigin(1, ProducerEpoch(0), 0), 1)
    state = state_at(0)
    assert taken(Fetched(state, FetchedBytes(buffer=content))) == []
    assert state.position == 1


def test_damage_is_reported() -> None:
    content = bytearray(batch(range(3)))
    content[-1] ^= 1
    with pytest.raises(DamagedBatchError, match="checksum mismatch") as damaged:
        Fetched(state_at(0), FetchedBytes(buffer=content))
    assert damaged.value.next_offset == 3
    assert taken(Fetched(state_at(0), FetchedBytes(buffer=batch(range(3)), check_crcs=False)))
    with pytest.raises(DamagedBatchError, match="incomplete") as damaged:
        Fetched(state_at(0), FetchedBytes(buffer=batch(range(3))[:30]))
    assert damaged.value.next_offset is None


def test_records_before_a_damaged_batch_are_handed_out() -> None:
    damaged = bytearray(batch(range(3, 6)))
    damaged[-1] ^= 1
    content = batch(range(3)) + damaged + batch(range(6, 9))
    state = state_at(0)
    fetched = Fetched(state, FetchedBytes(buffer=content))
    assert taken(fetched) == [0, 1, 2]
    assert state.position == fetched.next_offset == 3
    # A broker that starts with the batch before the position makes no progress either.
    with pytest.raises(DamagedBatchError) as found:
        Fetched(state_at(3), FetchedBytes(buffer=content))
    assert found.value.next_offset == 6
    assert taken(Fetched(state_at(6), FetchedBytes(buffer=batch(range(6, 9))))) == [6, 7, 8]


def test_records_before_the_position_and_of_compressed_batches_are_read() -> None:
    content = batch(range(3)) + batch(range(3, 9), compression=Compression.GZIP)
    fetched = Fetched(state_at(5), FetchedBytes(buffer=content))
    assert taken(fetched) == [5, 6, 7, 8]


def test_batches_are_handed_out_as_a_whole() -> None:
    state = state_at(0)
    content = batch(range(3)) + batch(range(3, 6)) + batch(range(6, 9))
    fetched = Fetched(state, FetchedBytes(buffer=content))
    state.arrived(fetched.size_bytes)
    assert fetched.hand_out(2)
    assert (state.position, fetched.is_stale) == (6, False)
    assert taken(fetched) == [6, 7, 8]
    again = Fetched(state_at(0), FetchedBytes(buffer=content))
    assert not again.hand_out(3)
    assert again.state.position == 9
    again.state.seek(0)
    assert again.is_stale


def test_the_lag_is_unknown_until_something_was_fetched() -> None:
    state = PartitionState(A0)
    assert state.lag is None
    state.seek(5)
    assert state.lag is None
    state.end_offset = Offset(12)
    assert state.lag == 7
    state.seek(20)
    assert state.lag == 0


def test_a_preferred_replica_is_read_for_a_while() -> None:
    state = state_at(0)
    leader, near = BrokerId(1), BrokerId(2)
    assert state.replica_to_read(leader, 0) == leader
    state.preferred_replica, state.preferred_until_ms = near, 100
    assert state.replica_to_read(leader, 99) == near
    assert state.replica_to_read(leader, 100) == leader
