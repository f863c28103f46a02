"""Few descriptors are enough for many segments, and none is closed while it is in use."""

import contextlib
import resource
from collections.abc import Iterator
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
from moldau.storage.directory.logs import Logs
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import LogOptions
from moldau.storage.log.retention import delete_old_segments
from moldau.storage.segment.open_segments import segments_open_max
from moldau.types import LeaderEpoch, Offset, TopicPartition

DESCRIPTORS = Path("/proc/self/fd")
pytestmark = pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs Linux's /proc")

LOGS = 120
CONFIG = LogConfig(internal_segment_bytes=4_000, retention_bytes=10**9)


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """A limit of the descriptors that this process holds already (perhaps those of another test's
    broker), plus the share of the segments, plus 100.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = max(int(entry.name) for entry in DESCRIPTORS.iterdir())
    limit = (held + 100) * 5 // 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def open_files() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for entry in DESCRIPTORS.iterdir():
        # The descriptor of the listing itself is already closed.
        with contextlib.suppress(FileNotFoundError):
            found[entry.name] = entry.readlink()
    return found


def start(path: Path, flusher: GroupFlusher | None = None) -> Logs:
    options = LogOptions(config=CONFIG, flush_policy="group" if flusher else "os", flusher=flusher)
    logs = Logs(open_directory(path), lambda _: options)
    logs.load(now_ms=0)
    close_after_the_test(lambda: kill(logs))
    return logs


def kill(logs: Logs) -> None:
    for log in logs.by_partition.values():
        log.abandon()
    logs.directory.close()


def fill(logs: Logs) -> None:
    for log in logs.by_partition.values():
        for _ in range(8):
            log.append_as_leader(records_batch([b"v" * 1_000]), LeaderEpoch(0), 5_000)
        log.raise_high_watermark(log.log_end_offset)


def use(logs: Logs) -> None:
    """Runs all operations that open files of segments."""
    for log in logs.by_partition.values():
        delete_old_segments(log, 5_000)
        assert len(values_of(log)) == log.log_end_offset
        log.offset_for_timestamp(-3)
        log.flush()
    run_here(logs.checkpoints.writing())


@pytest.mark.usefixtures("few_descriptors")
@pytest.mark.parametrize("is_clean", [True, False])
def test_many_logs_need_few_descriptors(tmp_path: Path, *, is_clean: bool) -> None:
    logs = start(tmp_path)
    for number in range(LOGS):
        logs.create(TopicPartition("t", number), None, now_ms=0)
    fill(logs)
    use(logs)
    if is_clean:
        logs.stop()
    else:
        kill(logs)
    again = start(tmp_path)
    use(again)
    fill(again)
    use(again)
    assert sum(len(log.segments) for log in again.by_partition.values()) > 2 * segments_open_max()
    assert again.directory.is_online


@pytest.mark.usefixtures("few_descriptors")
def test_files_of_a_running_flush_stay_open(tmp_path: Path) -> None:
    """Otherwise another file could get their descriptors and be synced instead."""
    logs = start(tmp_path)
    for number in range(LOGS):
        logs.create(TopicPartition("t", number), None, now_ms=0)
    flushed = logs.by_partition[TopicPartition("t", 0)]
    fill(logs)
    ticket = flushed.begin_flush(everything=True)
    held = {entry: path for entry, path in open_files().items() if "/t-0/" in str(path)}
    assert held
    fill(logs)
    use_others = [log for log in logs.by_partition.values() if log is not flushed]
    for log in use_others:
        values_of(log)
    assert held.items() <= open_files().items()
    ticket.run()
    assert ticket.error is None
    flushed.finish_flush(ticket)
    assert flushed.flushed_offset == 8


@pytest.mark.usefixtures("few_descriptors")
def test_a_round_flushes_as_many_logs_as_may_have_open_files(tmp_path: Path) -> None:
    flusher = GroupFlusher()
    logs = start(tmp_path, flusher)
    count = segments_open_max()
    for number in range(count):
        logs.create(TopicPartition("t", number), None, now_ms=0)
    fill(logs)
    tickets = flusher.begin()
    assert 0 < len(tickets) < count
    assert flusher.has_work
    for ticket in tickets:
        ticket.run()
    flusher.finish(tickets)
    flusher.run_round()
    assert not flusher.has_work
    assert {log.flushed_offset for log in logs.by_partition.values()} == {8}


def test_a_view_outlives_the_handle(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    one.fill(60)
    one.commit_all()
    view = one.log.read(Offset(0), 1 << 20).records
    content = bytes(view)
    for segment in one.log.segments:
        segment.release()
    assert bytes(view) == content
    one.log.truncate_to(Offset(1), 0)
    assert bytes(view) == content


@pytest.mark.parametrize("when", ["before the flush", "during the flush"])
def test_aborts_are_flushed_although_their_file_was_closed(tmp_path: Path, when: str) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    one.append_transactional(7, 0, b"v")
    one.end_transaction(7, abort=True)
    segment = one.log.segments.active
    if when == "before the flush":
        segment.release()
        assert [path.suffix for path in segment.paths_to_sync()] == [".log", ".txnindex"]
    else:
        ticket = one.log.begin_flush(everything=True)
        segment.release()
        ticket.run()
        one.log.finish_flush(ticket)
        assert [path.suffix for path in segment.paths_to_sync()] == [".log"]
