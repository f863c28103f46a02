"""A log's offsets, and the effects of truncation, epochs and closing on them."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.log_maker import (
    SMALL_SEGMENTS,
    OneLog,
    close_everything,
    read_all,
    state_of,
    values_of,
)

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.log.retention import delete_old_segments
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset


@pytest.fixture
def one(tmp_path: Path) -> OneLog:
    made = OneLog(tmp_path, SMALL_SEGMENTS)
    made.fill(100)
    return made


# High watermark and log start


def test_a_leaders_high_watermark_never_falls(one: OneLog) -> None:
    assert one.log.raise_high_watermark(Offset(50))
    assert not one.log.raise_high_watermark(Offset(40))
    assert one.log.high_watermark == 50


def test_a_followers_high_watermark_stays_within_its_log(one: OneLog) -> None:
    assert one.log.update_high_watermark(Offset(1_000)) == 100
    assert one.log.update_high_watermark(Offset(20)) == 20
    one.log.advance_log_start(Offset(10))
    assert one.log.update_high_watermark(Offset(3)) == 10


def test_the_start_moves_up_to_the_high_watermark_and_never_moves_back(one: OneLog) -> None:
    one.log.raise_high_watermark(Offset(50))
    with pytest.raises(KafkaError) as raised:
        one.log.advance_log_start(Offset(51))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert one.log.advance_log_start(Offset(50))
    assert not one.log.advance_log_start(Offset(20))
    assert one.log.log_start_offset == 50
    assert read_all(one.log)[0].offset == 50


# Epochs


def test_an_epoch_is_known_before_its_first_record(one: OneLog) -> None:
    one.log.start_leader_epoch(LeaderEpoch(5))
    assert one.log.epochs.entries == [(0, 0), (5, 100)]
    assert one.log.epochs.end_offset_for(LeaderEpoch(0), Offset(100)) == (0, 100)
    one.append(b"x", epoch=5)
    assert one.log.epochs.entries == [(0, 0), (5, 100)]


def test_an_epoch_without_records_is_forgotten_by_truncation(one: OneLog) -> None:
    one.log.start_leader_epoch(LeaderEpoch(5))
    assert not one.log.truncate_to(Offset(100), 0)
    assert one.log.epochs.entries == [(0, 0)]


# Truncation


def test_truncation_leaves_exactly_the_earlier_records(tmp_path: Path) -> None:
    for offset in (0, 1, 26, 27, 28, 50, 99):
        one = OneLog(tmp_path / str(offset), SMALL_SEGMENTS)
        one.fill(100)
        one.commit_all()
        kept = values_of(one.log)[:offset]
        assert one.log.truncate_to(Offset(offset), 0)
        assert values_of(one.log) == kept
        assert one.log.log_end_offset == offset
        assert one.log.high_watermark == offset
        again = OneLog(tmp_path / f"{offset} again", SMALL_SEGMENTS)
        again.fill(offset)
        assert one.log.epochs.entries == again.log.epochs.entries
        one.append(b"next")
        assert values_of(one.log) == [*kept, b"next"]


def test_truncation_inside_a_batch_drops_the_whole_batch(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append(b"a", b"b", b"c")
    one.append(b"d", b"e", b"f")
    one.log.truncate_to(Offset(4), 0)
    assert values_of(one.log) == [b"a", b"b", b"c"]
    assert one.log.log_end_offset == 3
    before = state_of(one.log)
    one.reopen(is_clean=False)
    assert state_of(one.log)["records"] == before["records"]
    assert one.log.log_end_offset == 3


def test_truncation_forgets_epochs_producers_and_aborts(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append(b"a", epoch=1)
    one.append_transactional(7, 0, b"t1")
    one.end_transaction(7, abort=True)
    before = state_of(one.log)
    end = one.log.log_end_offset
    one.append(b"b", epoch=2)
    one.append_transactional(7, 1, b"t2")
    one.append_transactional(8, 0, b"open")
    one.end_transaction(7, abort=True)
    assert one.log.producers.first_undecided_offset is not None
    one.log.truncate_to(end, 0)
    assert state_of(one.log) == before | {
        name: state_of(one.log)[name] for name in ("offset indexes", "time indexes")
    }
    assert one.log.producers.first_undecided_offset is None


def test_truncation_of_a_log_without_producers_reads_only_its_end() -> None:
    """As in the metadata log, which is truncated in the event loop."""
    reads = []
    for count in (10, 200):
        disk = SimulatedDisk()
        one = OneLog(Path("/log"), filesystem=disk)
        for number in range(count):
            one.append(b"x" * 40_000, timestamp_ms=number)
        disk.is_cold = lambda path: path.suffix == ".log"
        read: list[Path] = []
        disk.wait_for_disk = read.append
        assert one.log.truncate_to(Offset(count - 2), 0)
        assert (one.log.log_end_offset, one.log.producers.end_offset) == (count - 2, count - 2)
        reads.append(len(read))
    assert reads[1] <= reads[0]


def test_the_sync_of_a_truncation_is_a_step_of_its_own() -> None:
    """An event loop has a thread run it."""
    disk = SimulatedDisk()
    one = OneLog(Path("/log"), filesystem=disk)
    one.fill(10)
    steps, syncs = one.log.truncating(Offset(8), 0), 0
    with contextlib.suppress(StopIteration):
        while True:
            before = disk.effects
            slow = next(steps)
            kinds = {effect.kind for effect in disk.trace[before:]}
            assert not kinds & {"sync", "sync_directory"}
            before = disk.effects
            slow()
            syncs += sum(
                effect.kind == "sync" and effect.path.endswith(".log")
                for effect in disk.trace[before:]
            )
    assert syncs == 1
    assert not [change for change in disk.unsynced() if change.path.endswith(".log")]


def test_truncation_before_the_first_segment_starts_over(one: OneLog) -> None:
    one.commit_all()
    one.log.advance_log_start(Offset(60))
    delete_old_segments(one.log, 0)
    one.log.truncate_to(Offset(10), 0)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (10, 10)
    assert one.append(b"x") == 10


def test_full_truncation_restarts_at_any_offset(one: OneLog) -> None:
    one.commit_all()
    run_here(one.log.starting_over(Offset(500), Offset(500), 0))
    log = one.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (500, 500, 500)
    assert log.epochs.entries == []
    assert one.append(b"x") == 500
    assert sum(name.endswith(".log.deleted") for name in one.names()) > 2
    assert log.remove_deleted(60_000) > 2
    assert not any(name.endswith(".deleted") for name in one.names())


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=6))
def test_a_log_that_was_cut_and_extended_reads_like_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    one = OneLog(tmp_path_factory.mktemp("log"), SMALL_SEGMENTS)
    model: list[bytes | None] = []
    for round_number, (added, cut) in enumerate(steps):
        for number in range(added):
            value = b"%d/%d" % (round_number, number) * 20
            one.append(value, epoch=round_number)
            model.append(value)
        one.log.truncate_to(Offset(max(len(model) - cut, 0)), 0)
        del model[max(len(model) - cut, 0) :]
        assert values_of(one.log) == model
    one.reopen(is_clean=False)
    assert values_of(one.log) == model
    close_everything()


# Closing


def test_a_closed_log_reopens_unchanged(one: OneLog) -> None:
    one.append_transactional(7, 0, b"open")
    one.commit_all()
    before = state_of(one.log)
    end = one.log.log_end_offset
    one.reopen(is_clean=True, recovery_point=end, high_watermark=end)
    after = state_of(one.log)
    # Closing adds the largest timestamp to the last time index.
    assert after.pop("time indexes") != []
    before.pop("time indexes")
    assert after == before
    assert one.log.flushed_offset == end
    assert one.append(b"next") == end


def test_a_retry_is_still_known_after_a_clean_stop(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    offset = one.append_transactional(7, 0, b"once")
    one.reopen(is_clean=True)
    assert one.append_transactional(7, 0, b"once") == offset
    assert one.log.log_end_offset == 1
