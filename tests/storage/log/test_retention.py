"""Retention: segments that are too old, exceed the size or precede the start are deleted in two
steps, never past the high watermark.
"""

from pathlib import Path

import pytest
from storage.log_maker import OneLog, values_of

from moldau.config.log import LogConfig
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.storage.log.retention import delete_old_segments
from moldau.types import LeaderEpoch, Offset


def filled(path: Path, **settings: object) -> OneLog:
    """Segments of ten records of about 180 bytes; records are one second apart from second 1 on."""
    config = LogConfig(internal_segment_bytes=1_850, file_delete_delay_ms=60_000, **settings)  # type: ignore[arg-type]
    one = OneLog(path, config)
    for number in range(60):
        one.append(b"v" * 100, timestamp_ms=1_000 * (number + 1))
    one.commit_all()
    assert one.log.segments.base_offsets == [0, 10, 20, 30, 40, 50]
    return one


def test_old_segments_are_deleted(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=35_000)
    # The second segment's newest record is of second 20.
    assert delete_old_segments(one.log, now_ms=55_000) == 1
    assert delete_old_segments(one.log, now_ms=55_001) == 1
    assert one.log.log_start_offset == 20
    assert len(values_of(one.log)) == 40


def test_a_segment_with_damage_is_at_most_as_old_as_its_file(tmp_path: Path) -> None:
    """The damaged batch may be the newest one, and its time is unreadable."""
    one = filled(tmp_path, retention_ms=35_000)
    segment = one.log.segments[0]
    last = list(segment.walk())[-1]
    one.log.close()
    content = bytearray(segment.path().read_bytes())
    content[last.position + 16] = 9
    segment.path().write_bytes(content)
    log = one.reopen(is_clean=True, recovery_point=60, high_watermark=60)
    modified_ms = int(segment.path().stat().st_mtime * 1000)
    assert delete_old_segments(log, now_ms=modified_ms + 30_000) == 0
    assert log.log_start_offset == 0
    assert delete_old_segments(log, now_ms=modified_ms + 36_000) == 6


def test_a_log_whose_records_are_all_old_is_emptied_and_stays_usable(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=1_000)
    assert delete_old_segments(one.log, now_ms=10**6) == 6
    assert (one.log.log_start_offset, one.log.log_end_offset) == (60, 60)
    assert one.append(b"next") == 60
    assert delete_old_segments(one.log, now_ms=1_500) == 0


def test_the_smallest_number_of_segments_that_reaches_the_size_is_kept(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=-1, retention_bytes=1_000)
    size = one.log.segments[0].size
    one.log.config = LogConfig(retention_ms=-1, retention_bytes=3 * size)
    assert delete_old_segments(one.log, now_ms=0) == 3
    assert one.log.segments.size_in_bytes == 3 * size
    one.log.config = LogConfig(retention_ms=-1, retention_bytes=2 * size + 1)
    assert delete_old_segments(one.log, now_ms=0) == 0


def test_nothing_at_or_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=1)
    one.log.update_high_watermark(Offset(29))
    assert delete_old_segments(one.log, now_ms=10**6) == 2
    assert one.log.log_start_offset == 20


def test_an_undecided_transaction_is_not_deleted_before_it_could_be_read(
    tmp_path: Path,
) -> None:
    one = OneLog(tmp_path, LogConfig(internal_segment_bytes=1_850, retention_ms=1))
    one.fill(15)
    first = one.append_transactional(7, 0, b"v" * 100)
    one.fill(40)
    one.commit_all()
    delete_old_segments(one.log, now_ms=10**6)
    assert 0 < one.log.log_start_offset <= first == one.log.last_stable_offset
    one.end_transaction(7, abort=False)
    one.commit_all()
    delete_old_segments(one.log, now_ms=10**6)
    assert one.log.log_start_offset == one.log.log_end_offset


def test_segments_before_the_start_are_deleted_under_any_policy(tmp_path: Path) -> None:
    one = filled(tmp_path, cleanup_policy=("compact",), retention_ms=1)
    one.log.advance_log_start(Offset(25))
    assert delete_old_segments(one.log, now_ms=10**6) == 2
    assert one.log.segments.base_offsets == [20, 30, 40, 50]
    assert one.log.log_start_offset == 25


def test_an_infinite_retention_keeps_everything(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=-1, retention_bytes=-1)
    assert delete_old_segments(one.log, now_ms=10**15) == 0


def test_records_without_time_age_with_their_file(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(retention_ms=1_000))
    one.log.append_as_leader(build_batch([Record(0, -1, None, b"x")]), LeaderEpoch(0), 0)
    one.commit_all()
    one.log.roll(0)
    written_ms = one.filesystem.modified_ms(one.log.segments[0].path())
    assert delete_old_segments(one.log, now_ms=written_ms + 1_000) == 0
    assert delete_old_segments(one.log, now_ms=written_ms + 1_001) == 1


def test_deletion_has_two_steps(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=35_000)
    delete_old_segments(one.log, now_ms=55_001)
    marked = [name for name in one.names() if name.endswith(".deleted")]
    assert "00000000000000000010.log.deleted" in marked
    assert "00000000000000000010.snapshot.deleted" in marked
    assert one.log.remove_deleted(115_000) == 0
    assert [name for name in one.names() if name.endswith(".deleted")] == marked
    assert one.log.remove_deleted(115_001) == 2
    assert not any(name.endswith(".deleted") for name in one.names())
    assert not any(name.startswith("00000000000000000010") for name in one.names())


def test_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    one = filled(tmp_path, retention_ms=35_000)
    delete_old_segments(one.log, now_ms=55_001)
    log = one.reopen(is_clean=False, high_watermark=60)
    assert not any(name.endswith(".deleted") for name in one.names())
    assert (log.log_start_offset, log.log_end_offset) == (20, 60)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_moved_start_inside_a_segment_comes_from_the_checkpoint(
    tmp_path: Path, *, is_clean: bool
) -> None:
    one = filled(tmp_path)
    one.log.advance_log_start(Offset(25))
    log = one.reopen(is_clean=is_clean, high_watermark=60, log_start_offset=25)
    assert log.log_start_offset == 25
    assert len(values_of(log)) == 35
    assert log.epochs.entries[0].start_offset == 25
