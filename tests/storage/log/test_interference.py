"""Concurrent operations: a flush, a scrub or a read is in progress while the log is truncated,
moved, deleted or found damaged. Other logs are unaffected, and the directory stays online.
"""

import shutil
from pathlib import Path

import pytest
from storage.log_maker import (
    SMALL_SEGMENTS,
    OneLog,
    close_after_the_test,
    open_directory,
    records_batch,
    values_of,
)

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions
from moldau.storage.directory.logs import Logs
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.log.damage import scrub
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log, LogOptions
from moldau.types import LeaderEpoch, Offset, TopicPartition, Uuid

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
UNIQUE = Uuid(b"u" * 16)


def start(path: Path, flusher: GroupFlusher | None = None) -> Logs:
    options = LogOptions(
        config=SMALL_SEGMENTS, flush_policy="group" if flusher else "os", flusher=flusher
    )
    logs = Logs(open_directory(path), lambda _: options)
    logs.load(now_ms=0)

    def release() -> None:
        for log in (*logs.by_partition.values(), *logs.futures.values()):
            log.abandon()

    close_after_the_test(release)
    return logs


def fill(log: Log, count: int = 60) -> None:
    for _ in range(count):
        log.append_as_leader(records_batch([b"v" * 100]), LeaderEpoch(0), 5_000)
    log.raise_high_watermark(log.log_end_offset)


def damage_and_meet_it(log: Log) -> None:
    """A reader finds a damaged batch in a sealed segment."""
    path = log.segments[0].path()
    content = bytearray(path.read_bytes())
    content[16] = 9
    path.write_bytes(content)
    with pytest.raises(KafkaError):
        log.read(Offset(0), 1 << 20)
    assert log.damaged


@pytest.mark.parametrize("found", ["before the round", "during the round"])
def test_a_damaged_log_does_not_block_the_flush_of_others(tmp_path: Path, found: str) -> None:
    flusher = GroupFlusher()
    logs = start(tmp_path, flusher)
    damaged, sound = logs.create(A, None, now_ms=0), logs.create(B, None, now_ms=0)
    fill(damaged)
    fill(sound)
    if found == "before the round":
        damage_and_meet_it(damaged)
        flusher.run_round()
    else:
        tickets = flusher.begin()
        damage_and_meet_it(damaged)
        for ticket in tickets:
            ticket.run()
        flusher.finish(tickets)
    assert sound.flushed_offset == sound.log_end_offset
    fill(sound, 1)
    flusher.run_round()
    assert sound.flushed_offset == sound.log_end_offset


def test_a_log_may_be_renamed_while_it_is_flushed(tmp_path: Path) -> None:
    logs = start(tmp_path)
    future = logs.create_future(A, None, UNIQUE, now_ms=0)
    fill(future)
    ticket = future.begin_flush(everything=True)
    moved = run_here(logs.promoting_future(A))
    ticket.run()
    moved.finish_flush(ticket)
    assert logs.directory.is_online
    # The flush may have looked for files at their old place.
    assert moved.flushed_offset == 0
    moved.flush()
    assert moved.flushed_offset == 60


def test_a_log_may_be_truncated_while_it_is_flushed(tmp_path: Path) -> None:
    """Including segments and producer snapshots that the flush is about to sync."""
    logs = start(tmp_path)
    log = logs.create(A, None, now_ms=0)
    fill(log)
    ticket = log.begin_flush(everything=True)
    log.truncate_to(Offset(1), 0)
    log.remove_deleted(10**9)
    ticket.run()
    log.finish_flush(ticket)
    assert logs.directory.is_online
    assert log.flushed_offset == 1


def test_segments_cut_before_a_move_are_removed_in_time(tmp_path: Path) -> None:
    logs = start(tmp_path)
    future = logs.create_future(A, None, UNIQUE, now_ms=0)
    fill(future)
    future.truncate_to(Offset(2), 0)
    moved = run_here(logs.promoting_future(A))
    assert list(moved.path.glob("*.deleted"))
    run_here(logs.removing_deleted(10**9))
    assert not list(moved.path.glob("*.deleted"))


def test_a_reader_of_a_deleted_log_is_refused_and_harms_no_other_log(tmp_path: Path) -> None:
    logs = start(tmp_path)
    log = logs.create(A, None, now_ms=0)
    fill(log)
    steps = scrub(log)
    next(steps)
    logs.delete(A, UNIQUE, now_ms=0)
    run_here(logs.removing_deleted(10**9))
    for use in (
        lambda: log.read(Offset(0), 100),
        lambda: next(steps),
        lambda: log.append_as_leader(records_batch([b"v"]), LeaderEpoch(0), 0),
        lambda: log.truncate_to(Offset(0), 0),
    ):
        with pytest.raises(KafkaError) as raised:
            use()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.directory.is_online


def test_a_scrub_does_not_take_a_truncation_for_damage(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig())
    for number in range(12):
        one.append(b"%d" % number * 400_000)
    steps = scrub(one.log)
    next(steps)
    one.log.truncate_to(Offset(3), 0)
    for number in range(20):
        one.append(b"%d" % number * 300_001)
    list(steps)
    assert one.log.damage is None
    assert len(values_of(one.log)) == 23


# Changes made by other programs


def test_a_deleted_directory_that_is_already_gone_is_accepted(tmp_path: Path) -> None:
    logs = start(tmp_path)
    logs.create(A, None, now_ms=0)
    logs.delete(A, UNIQUE, now_ms=0)
    shutil.rmtree(next(tmp_path.glob("*-delete")))
    assert run_here(logs.removing_deleted(10**9)) == 1
    assert logs.directory.is_online


def test_a_partition_behind_a_symbolic_link_can_be_used_and_deleted(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    logs = start(path)
    fill(logs.create(A, None, now_ms=0))
    logs.stop()
    (path / "a-0").rename(elsewhere)
    (path / "a-0").symlink_to(elsewhere)
    again = start(path)
    assert len(values_of(again.by_partition[A])) == 60
    again.delete(A, UNIQUE, now_ms=0)
    assert run_here(again.removing_deleted(10**9)) == 1
    assert again.directory.is_online
    assert not list(path.glob("a-0*"))


def test_a_second_copy_of_a_partition_is_reported_and_left_alone(tmp_path: Path) -> None:
    logs = start(tmp_path)
    fill(logs.create_future(A, None, UNIQUE, now_ms=0))
    logs.stop()
    second = tmp_path / f"a-0.{'a' * 32}-future"
    shutil.copytree(next(tmp_path.glob("*-future")), second)
    again = start(tmp_path)
    assert len(again.futures) == 1
    assert len(again.unreadable) == 1


def test_a_topic_never_inherits_the_records_of_an_unreadable_directory(tmp_path: Path) -> None:
    logs = start(tmp_path)
    fill(logs.create(A, Uuid(b"1" * 16), now_ms=0))
    logs.stop()
    metadata = tmp_path / "a-0" / "partition.metadata"
    metadata.write_bytes(b"nonsense")
    again = start(tmp_path)
    with pytest.raises(KafkaError) as raised:
        again.create(A, Uuid(b"2" * 16), now_ms=0)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert metadata.read_bytes() == b"nonsense"


# Indexes are caches, however they are damaged


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("use", ["truncate", "append", "close", "flush"])
def test_a_broken_index_never_takes_a_log_offline(tmp_path: Path, kind: str, use: str) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    one.fill(100)
    one.commit_all()
    one.log.close()
    for path in one.log.path.glob(f"*.{kind}"):
        path.write_bytes(path.read_bytes() + b"abc")
    log = one.reopen(is_clean=True, recovery_point=100, high_watermark=100)
    if use == "truncate":
        log.truncate_to(Offset(50), 0)
    elif use == "append":
        one.fill(50)
    elif use == "flush":
        log.roll(0)
        log.flush()
    else:
        log = one.reopen(is_clean=True, recovery_point=100, high_watermark=100)
    assert log.damage is None
    assert len(values_of(log)) == log.log_end_offset


def test_batches_too_far_apart_for_one_segment_get_several(tmp_path: Path) -> None:
    """As a follower of a compacted log: offsets in a segment are relative, in 31 bits."""
    offsets = [0, 2**31 - 1, 2**31, 2**32, 2**33]
    one = OneLog(tmp_path, LogConfig(cleanup_policy=("compact",), index_interval_bytes=0))
    batches = [records_batch([b"v" * 100], BatchOptions(base_offset=base)) for base in offsets]
    one.log.append_as_follower(b"".join(batches), LeaderEpoch(0), 0)
    assert one.log.segments.base_offsets == [0, 2**31, 2**31 + 1, 2**33]
    log = one.reopen(is_clean=False)
    assert log.log_end_offset == 2**33 + 1
    assert len(values_of(log)) == 5
