"""Reading: whole batches from the one that contains the offset, within limits; offsets by time."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.log_maker import (
    SMALL_SEGMENTS,
    OneLog,
    close_everything,
    read_all,
    read_from,
    records_batch,
)

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import committed_batches
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.log.log import Log
from moldau.storage.log.read import FoundOffset, Isolation
from moldau.types import LeaderEpoch, Offset


def bases(log: Log, offset: int, max_bytes: int, **how: object) -> list[int]:
    result = log.read(offset, max_bytes, isolation=Isolation.LOG_END, **how)  # type: ignore[arg-type]
    return [batch.base_offset for batch in iterate_batches(result.records)]


@pytest.fixture
def one(tmp_path: Path) -> OneLog:
    """Batches of three records of equal size, in several segments."""
    made = OneLog(tmp_path, SMALL_SEGMENTS)
    for number in range(60):
        made.append(b"a%03d" % number, b"b" * 30, b"c" * 30, timestamp_ms=10_000 + 10 * number)
    return made


def test_a_read_begins_with_the_batch_that_contains_the_offset(one: OneLog) -> None:
    for offset in range(180):
        assert bases(one.log, offset, 1)[0] == offset // 3 * 3


def test_a_read_holds_whole_batches_within_its_limit(one: OneLog) -> None:
    size = one.log.segments[0].locate(Offset(0)).size  # type: ignore[union-attr]
    for offset in (0, 4, 30):
        for batches in (1, 2, 5):
            for extra in (0, 1, size - 1):
                result = one.log.read(
                    Offset(offset), batches * size + extra, isolation=Isolation.LOG_END
                )
                found = list(iterate_batches(result.records))
                assert len(found) == batches
                assert len(result.records) == batches * size
                assert result.next_offset == found[-1].next_offset


def test_the_first_batch_is_returned_whole_even_if_it_is_larger_than_the_limit(one: OneLog) -> None:
    assert bases(one.log, 5, 0) == [3]
    assert bases(one.log, 5, 10) == [3]
    nothing = one.log.read(Offset(5), 10, isolation=Isolation.LOG_END, min_one_batch=False)
    assert len(nothing.records) == 0
    assert nothing.first_batch_bytes > 10
    assert nothing.next_offset == 5


def test_offsets_outside_the_log_are_refused(one: OneLog) -> None:
    one.commit_all()
    one.log.advance_log_start(Offset(7))
    for offset in (-1, 0, 6, 181):
        with pytest.raises(KafkaError) as raised:
            one.log.read(Offset(offset), 100)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as raised:
        one.log.read(Offset(10), -1)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert len(one.log.read(Offset(180), 100).records) == 0


def test_readers_see_nothing_at_or_above_their_limit(one: OneLog) -> None:
    log = one.log
    for high_watermark in (0, 3, 4, 60, 177, 180):
        log.update_high_watermark(Offset(high_watermark))
        # A batch that extends past the high watermark is not shown in part.
        visible = high_watermark // 3 * 3
        for step in (1, 500, 1 << 20):
            offsets = [r.offset for r in read_from(log, 0, Isolation.HIGH_WATERMARK, step)]
            assert offsets == list(range(visible))
    assert len(read_all(log, Isolation.LOG_END)) == 180


def test_sealed_segments_are_read_without_a_copy_and_outlive_their_deletion(one: OneLog) -> None:
    result = one.log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END)
    before = bytes(result.records)
    one.commit_all()
    run_here(one.log.starting_over(Offset(0), Offset(0), 0))
    one.log.remove_deleted(1 << 60)
    assert not any(name.endswith(".deleted") for name in one.names())
    assert bytes(result.records) == before


def test_a_view_survives_the_truncation_of_its_segment(one: OneLog) -> None:
    result = one.log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END)
    before = bytes(result.records)
    one.log.truncate_to(Offset(6), 0)
    one.append(b"other bytes" * 50)
    assert bytes(result.records) == before
    assert [record.offset for record in read_all(one.log)] == [0, 1, 2, 3, 4, 5, 6]


def test_reads_skip_ranges_that_compaction_emptied(tmp_path: Path) -> None:
    follower = OneLog(tmp_path, SMALL_SEGMENTS)
    for base in (0, 50, 51, 400):
        options = BatchOptions(base_offset=base, partition_leader_epoch=0)
        follower.log.append_as_follower(records_batch([b"x" * 900], options), LeaderEpoch(0), 6_000)
        follower.log.roll(6_000, Offset(base + 20 if base == 51 else 0))
    assert [bases(follower.log, o, 0) for o in (1, 50, 52, 70, 71, 399)] == [
        [50], [50], [400], [400], [400], [400],
    ]  # fmt: skip
    assert bases(follower.log, 401, 0) == []


def test_committed_readers_get_the_aborted_transactions_of_the_records_they_read(
    tmp_path: Path,
) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    seen: list[bytes] = []
    for number in range(40):
        producer, abort = 1 + number % 3, number % 2 == 0
        one.append(b"plain%d" % number)
        one.append_transactional(producer, number // 3, b"t%d" % number + b"x" * 50)
        one.end_transaction(producer, abort=abort)
        seen.append(b"plain%d" % number)
        if not abort:
            seen.append(b"t%d" % number + b"x" * 50)
    one.commit_all()
    assert len(one.log.segments) > 2
    for step in (0, 300, 1_000, 1 << 20):
        offset, got = 0, []
        while True:
            result = one.log.read(Offset(offset), step, isolation=Isolation.COMMITTED)
            if not len(result.records):
                break
            aborted = [(a.producer_id, a.first_offset) for a in result.aborted or []]
            for batch in committed_batches(iterate_batches(result.records), aborted):
                got += [r.value for r in batch.records() if r.offset >= offset]
            offset = result.next_offset
        assert got == seen


def test_an_abort_in_a_later_segment_is_reported(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    one.append_transactional(7, 0, b"aborted")
    one.fill(60)
    marker = one.end_transaction(7, abort=True)
    one.commit_all()
    first = one.log.read(Offset(0), 1, isolation=Isolation.COMMITTED)
    assert [(a.first_offset, a.last_offset) for a in first.aborted or []] == [(0, marker)]
    assert one.log.read(Offset(0), 1).aborted is None


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    step=st.integers(0, 3_000),
    interval=st.sampled_from([0, 64, 300, 4096]),
)
def test_every_record_is_read_once_with_any_step(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], step: int, interval: int
) -> None:
    config = LogConfig(internal_segment_bytes=2_000, index_interval_bytes=interval)
    one = OneLog(tmp_path_factory.mktemp("log"), config)
    for size in sizes:
        one.append(b"v" * size, b"w")
    assert [r.offset for r in read_all(one.log, step=step)] == list(range(2 * len(sizes)))
    close_everything()


# By time


def test_the_special_values(one: OneLog) -> None:
    log = one.log
    one.commit_all()
    log.advance_log_start(Offset(10))
    assert log.offset_for_timestamp(-1) == FoundOffset(-1, Offset(180), LeaderEpoch(0))
    assert log.offset_for_timestamp(-2) == FoundOffset(-1, Offset(10), LeaderEpoch(0))
    assert log.offset_for_timestamp(-3) == FoundOffset(10_000 + 592, Offset(179), LeaderEpoch(0))
    assert log.offset_for_timestamp(-4) == FoundOffset(-1, Offset(10), LeaderEpoch(0))
    assert log.offset_for_timestamp(-5) == FoundOffset(-1, Offset(-1), LeaderEpoch(-1))
    assert log.offset_for_timestamp(-6) == FoundOffset(-1, Offset(-1), LeaderEpoch(-1))


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = OneLog(tmp_path).log
    assert log.offset_for_timestamp(-3) is None
    assert log.offset_for_timestamp(1_000) is None
    assert log.offset_for_timestamp(-1) == FoundOffset(-1, Offset(0), None)
    assert log.offset_for_timestamp(-2) == FoundOffset(-1, Offset(0), None)


def test_the_first_record_at_or_after_a_time_is_found(one: OneLog) -> None:
    log = one.log
    records = read_all(log)
    for timestamp_ms in range(9_990, 10_600, 7):
        later = [r for r in records if r.timestamp >= timestamp_ms]
        wanted = (
            FoundOffset(later[0].timestamp, Offset(later[0].offset), LeaderEpoch(0))
            if later
            else None
        )
        assert log.offset_for_timestamp(timestamp_ms) == wanted


@pytest.mark.parametrize("codec", list(Compression))
def test_times_are_found_inside_compressed_batches(tmp_path: Path, codec: Compression) -> None:
    one = OneLog(tmp_path)
    times = [50, 20, 90, 70]
    batch = build_batch(
        [Record(i, t, None, b"v") for i, t in enumerate(times)], BatchOptions(compression=codec)
    )
    one.log.append_as_leader(batch, LeaderEpoch(3), 100)
    assert one.log.offset_for_timestamp(60) == FoundOffset(90, Offset(2), LeaderEpoch(3))
    assert one.log.offset_for_timestamp(0) == FoundOffset(50, Offset(0), LeaderEpoch(3))
    assert one.log.offset_for_timestamp(91) is None
    assert one.log.offset_for_timestamp(-3) == FoundOffset(90, Offset(2), LeaderEpoch(3))


def test_times_out_of_order_over_segments(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    for number in range(60):
        one.append(b"x" * 100, timestamp_ms=1_000 + (number * 37) % 101)
    records = read_all(one.log)
    for timestamp_ms in range(995, 1_105, 3):
        later = [r for r in records if r.timestamp >= timestamp_ms]
        found = one.log.offset_for_timestamp(timestamp_ms)
        assert (found and found.offset) == (later[0].offset if later else None)


def test_deleted_records_are_not_found_by_time(one: OneLog) -> None:
    one.commit_all()
    one.log.advance_log_start(Offset(100))
    found = one.log.offset_for_timestamp(10_000)
    assert found is not None
    assert found.offset == 100
