"""The choice of the log to compact, the offset up to which, and events that stop a pass."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from storage.compaction_logs import HASH_KEY, NAME, NOW_MS, CompactedLog, compacting

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.compaction.plan import SourceSegment, assess, group_segments
from moldau.storage.compaction.run import CompactionAbortedError
from moldau.storage.directory.checkpoints import CLEANER_FILE
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import NoDescriptorError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import FIRST_OFFSET, Offset, TopicPartition


def dirty_log(**settings: object) -> CompactedLog:
    """Two sealed segments with one key each, and an empty active one."""
    log = CompactedLog(config=compacting(**settings))
    log.put((b"a", b"1"), timestamps=[NOW_MS - 100])
    log.roll()
    log.put((b"a", b"2"), timestamps=[NOW_MS - 50])
    log.roll()
    return log


def other_log(log: CompactedLog, number: int) -> Log:
    """A second partition of the same directory, with twice the dirt."""
    name = TopicPartition("t", number)
    place = LogLocation(
        directory=log.directory, path=log.directory.path_of(name), topic_partition=name
    )
    return open_log(
        place, LogOptions(config=log.config), Checkpointed(), is_clean=False, now_ms=log.now_ms
    )


# The range to clean


def test_a_log_that_was_never_cleaned_is_dirty_from_its_start_to_the_active_segment() -> None:
    log = dirty_log()
    cleanable = assess(log.log, None, NOW_MS)
    assert (cleanable.first_dirty_offset, cleanable.first_uncleanable_offset) == (0, 2)
    assert cleanable.dirty_ratio == 1.0


def test_the_high_watermark_and_the_last_stable_offset_bound_the_cleaning() -> None:
    log = dirty_log()
    log.log.update_high_watermark(Offset(1))
    assert assess(log.log, None, NOW_MS).first_uncleanable_offset == 1
    log.log.update_high_watermark(Offset(0))
    assert assess(log.log, None, NOW_MS).cleanable_bytes == 0


def test_a_segment_younger_than_the_minimum_lag_waits() -> None:
    log = dirty_log(min_compaction_lag_ms=80)
    assert assess(log.log, None, NOW_MS).first_uncleanable_offset == 1
    assert assess(log.log, None, NOW_MS + 30).first_uncleanable_offset == 2
    assert assess(log.log, None, NOW_MS - 50).first_uncleanable_offset == 0


def test_the_dirty_ratio_decides_whether_a_log_is_due() -> None:
    log = dirty_log(min_cleanable_dirty_ratio=0.5)
    first, second = log.log.segments[0].size, log.log.segments[1].size
    assert first == second
    assert assess(log.log, FIRST_OFFSET, NOW_MS).is_due
    half_dirty = assess(log.log, Offset(1), NOW_MS)
    assert half_dirty.dirty_ratio == 0.5
    assert not half_dirty.is_due


def test_a_record_older_than_the_maximum_lag_makes_the_log_due() -> None:
    log = dirty_log(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60)
    assert assess(log.log, None, NOW_MS).is_due
    assert not assess(log.log, None, NOW_MS - 45).is_due
    assert not assess(log.log, Offset(1), NOW_MS).is_due
    assert assess(log.log, Offset(1), NOW_MS + 20).is_due


@pytest.mark.parametrize("checkpoint", [3, 100])
def test_a_checkpoint_outside_of_the_log_is_replaced(checkpoint: int) -> None:
    log = dirty_log()
    log.cleaner.adopt(NAME, Offset(checkpoint))
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    assert log.cleaner.clean_offset(NAME) == 0


def test_a_checkpoint_before_the_log_start_moves_up() -> None:
    log = dirty_log()
    log.log.advance_log_start(Offset(1))
    cleanable = assess(log.log, FIRST_OFFSET, NOW_MS)
    assert (cleanable.first_dirty_offset, cleanable.checkpoint_was_wrong) == (1, True)


def test_groups_end_where_offsets_would_not_fit() -> None:
    def source(base_offset: int, size_bytes: int = 10) -> SourceSegment:
        return SourceSegment(Offset(base_offset), Path("x"), size_bytes, 8, 12)

    config = compacting()
    far = 2**31
    sources = [source(0), source(5), source(far - 1), source(far), source(far + 9)]
    groups = group_segments(sources, config, Offset(far + 20))
    assert [[s.base_offset for s in group] for group in groups] == [
        [0, 5, far - 1],
        [far, far + 9],
    ]
    empty_last = [source(0), source(far, 0)]
    assert len(group_segments(empty_last, config, Offset(far + 20))) == 1


def test_groups_respect_the_size_of_both_indexes() -> None:
    config = compacting(segment_index_bytes=100)
    sources = [SourceSegment(Offset(n), Path("x"), 1, 48, 12) for n in range(4)]
    assert [len(group) for group in group_segments(sources, config, Offset(9))] == [2, 2]
    sources = [SourceSegment(Offset(n), Path("x"), 1, 8, 36) for n in range(5)]
    assert [len(group) for group in group_segments(sources, config, Offset(9))] == [2, 2, 1]


# The choice of a log


def test_the_dirtiest_log_comes_first() -> None:
    log = dirty_log()
    other = other_log(log, 1)
    whole = log.log
    log.log = other
    log.put((b"a", b"1"))
    log.roll()
    log.cleaner.adopt(NAME, Offset(1))
    compaction = log.cleaner.begin([whole, other], NOW_MS)
    assert compaction is not None
    assert compaction.name == TopicPartition("t", 1)


def test_a_log_is_compacted_by_one_pass_at_a_time() -> None:
    log = dirty_log()
    first = log.cleaner.begin([log.log], NOW_MS)
    assert first is not None
    assert log.cleaner.begin([log.log], NOW_MS) is None
    log.cleaner.finish(first)
    assert log.cleaner.begin([log.log], NOW_MS) is not None


def test_a_log_without_compaction_is_never_chosen() -> None:
    log = dirty_log(cleanup_policy=("delete",))
    assert log.cleaner.begin([log.log], NOW_MS) is None


def test_compact_and_delete_together_are_compacted_too() -> None:
    log = dirty_log(cleanup_policy=("compact", "delete"))
    log.clean()
    assert [record.offset for record in log.records()] == [1]


def test_a_clean_log_is_not_due_again() -> None:
    log = dirty_log()
    log.clean()
    assert log.cleaner.begin([log.log], NOW_MS) is None


# The checkpoint


def test_the_clean_offset_survives_a_restart_in_kafkas_file() -> None:
    log = dirty_log()
    log.clean()
    path = log.root / CLEANER_FILE
    file = log.filesystem.open(path)
    assert file.read(0, 100) == b"0\n1\nt 0 2\n"
    again = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    assert again.clean_offset(NAME) == 2


def test_a_broken_checkpoint_means_that_everything_is_dirty() -> None:
    log = dirty_log()
    file = log.filesystem.open(log.root / CLEANER_FILE, create=True)
    file.append([b"0\n2\nt 0 2\n"])
    again = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    assert again.clean_offset(NAME) is None


def test_truncation_makes_the_rest_dirty() -> None:
    log = dirty_log()
    log.clean()
    log.cleaner.truncated(NAME, Offset(5))
    assert log.cleaner.clean_offset(NAME) == 2
    log.cleaner.truncated(NAME, Offset(1))
    assert log.cleaner.clean_offset(NAME) == 1


def test_a_deleted_log_is_forgotten() -> None:
    log = dirty_log()
    log.clean()
    log.cleaner.forget(NAME)
    assert log.cleaner.clean_offset(NAME) is None
    assert LogCleaner(log.directory, CleanerConfig(), HASH_KEY).clean_offset(NAME) is None


# Stopping a pass


def test_a_paused_log_is_not_chosen_until_it_was_resumed_as_often() -> None:
    log = dirty_log()
    log.cleaner.pause(NAME)
    log.cleaner.pause(NAME)
    log.cleaner.resume(NAME)
    assert log.cleaner.begin([log.log], NOW_MS) is None
    log.cleaner.resume(NAME)
    assert log.cleaner.begin([log.log], NOW_MS) is not None


def test_a_stopped_pass_leaves_the_log_and_the_checkpoint_as_they_were() -> None:
    log = dirty_log()
    before = log.content()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    log.cleaner.truncated(NAME, Offset(2))
    with pytest.raises(CompactionAbortedError):
        compaction.step()
    log.cleaner.finish(compaction)
    assert log.content() == before
    assert log.cleaner.clean_offset(NAME) is None
    assert not [name for name in log.file_names() if name.endswith(".cleaned")]


def test_a_group_that_was_cleaned_before_the_stop_is_dropped() -> None:
    log = dirty_log()
    before = log.content()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    group = compaction.step()
    assert group is not None
    assert [name for name in log.file_names() if name.endswith(".cleaned")]
    log.cleaner.pause(NAME)
    with pytest.raises(CompactionAbortedError):
        run_here(log.cleaner.applying(compaction, group, NOW_MS))
    assert log.content() == before
    assert not [name for name in log.file_names() if name.endswith(".cleaned")]


def test_a_group_whose_segments_retention_removed_is_dropped() -> None:
    log = dirty_log()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    group = compaction.step()
    assert group is not None
    log.log.advance_log_start(Offset(1))
    log.log.retire([log.log.segments[0]], NOW_MS)
    with pytest.raises(CompactionAbortedError):
        run_here(log.cleaner.applying(compaction, group, NOW_MS))
    log.cleaner.finish(compaction)
    assert [record.offset for record in log.records()] == [1]
    assert log.cleaner.clean_offset(NAME) is None


def test_a_source_that_is_gone_ends_the_pass() -> None:
    log = dirty_log()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    log.log.retire([log.log.segments[0]], NOW_MS)
    with pytest.raises(CompactionAbortedError):
        compaction.step()


def test_a_failed_disk_takes_the_directory_offline() -> None:
    log = dirty_log()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    with pytest.raises(KafkaError) as caught:
        log.cleaner.finish(compaction, OSError(5, "Input/output error"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.directory.is_online


def test_a_log_that_had_no_descriptor_is_compacted_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CompactedLog(
        filesystem=DiskFileSystem(),
        config=compacting(max_compaction_lag_ms=10),
        root=tmp_path / "d",
    )
    for number in range(3):
        log.put((b"a", b"%d" % number), timestamps=[NOW_MS - 100])
        log.roll()
    log.log.close()
    log.reopen()
    for segment in log.log.segments:
        segment.release()
    open_file, left = os.open, 0

    def opening(*arguments: Any, **options: Any) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        left -= 1
        return open_file(*arguments, **options)

    monkeypatch.setattr(os, "open", opening)
    with pytest.raises(NoDescriptorError):
        log.cleaner.begin([log.log], NOW_MS)
    left = 1000
    assert not log.cleaner.uncleanable
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    group = compaction.step()
    assert group is not None
    # Enough for all steps of the swap: it does not stop half way.
    left = 1
    run_here(log.cleaner.applying(compaction, group, NOW_MS))
    left = 1000
    log.cleaner.finish(compaction)
    assert log.directory.is_online
    assert log.values() == {b"a": b"2"}


def test_a_swap_without_descriptors_leaves_the_log_whole_or_its_directory_offline() -> None:
    refusals = 0
    while True:
        log = dirty_log()
        disk = log.filesystem
        assert isinstance(disk, SimulatedDisk)
        compaction = log.cleaner.begin([log.log], NOW_MS)
        assert compaction is not None
        group = compaction.step()
        assert group is not None
        disk.fail_at(disk.effects + refusals + 1, OSError(errno.EMFILE, "Too many open files"))
        try:
            run_here(log.cleaner.applying(compaction, group, NOW_MS))
        except KafkaError as error:
            refusals += 1
            if log.directory.is_online:
                with pytest.raises(NoDescriptorError):
                    log.cleaner.finish(compaction, error)
                assert not log.cleaner.uncleanable
                assert log.values() == {b"a": b"2"}
        else:
            break
    assert refusals > 10


def test_steps_may_run_in_another_thread_while_the_log_is_in_use(tmp_path: Path) -> None:
    log = CompactedLog(
        filesystem=DiskFileSystem(),
        cleaner_config=CleanerConfig(io_buffer_bytes=4096),
        root=tmp_path / "d",
    )
    for number in range(2000):
        log.put((b"k%d" % (number % 100), b"%d" % number))
        if number % 500 == 499:
            log.roll()
    compaction = log.cleaner.begin([log.log], NOW_MS)
    assert compaction is not None
    with ThreadPoolExecutor(1) as thread:
        while True:
            step = thread.submit(compaction.step)
            log.put((b"meanwhile", b"1"))
            group = step.result()
            if group is None:
                break
            run_here(log.cleaner.applying(compaction, group, NOW_MS))
    log.cleaner.finish(compaction)
    assert log.values() == {
        **{b"k%d" % k: b"%d" % (1900 + k) for k in range(100)},
        b"meanwhile": b"1",
    }
    assert compaction.counts.records_read == 2000
    assert compaction.counts.records_kept == 100
