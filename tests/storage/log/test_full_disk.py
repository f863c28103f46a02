"""A disk that is full for a while: operations that need space are refused, all others work, and
with space again nothing is missing.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from storage.log_maker import close_after_the_test, open_directory, records_batch, values_of

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.storage.directory.checkpoints import LOG_START_FILE, RECOVERY_POINT_FILE
from moldau.storage.directory.logs import Logs
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.storage.disk.reserve import RESERVE_FILE
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.retention import delete_old_segments
from moldau.types import Buffer, LeaderEpoch, Offset, TopicPartition, Uuid

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CONFIG = LogConfig(internal_segment_bytes=4_096, index_interval_bytes=0, retention_ms=10)


class FullDisk(DiskFileSystem):
    """Refuses all new content while `is_full`; removing and renaming work."""

    def __init__(self) -> None:
        self.is_full = False
        self.files_left: int | None = None
        """Number of files that may still be created before it is full."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if create and not path.exists():
            if self.files_left is not None:
                self.is_full |= self.files_left == 0
                self.files_left -= 1
            self.check_room(path)
        file = super().open(path, create=create)
        return _FileOfFullDisk(self, file)

    def make_directory(self, path: Path) -> None:
        if not path.exists():
            self.check_room(path)
        super().make_directory(path)

    def check_room(self, path: Path) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class _FileOfFullDisk(DiskFile):
    def __init__(self, disk: FullDisk, file: DiskFile) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()
        self._disk = disk

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._disk.check_room(self.path)
        super().append(buffers)


def start(path: Path, disk: FullDisk) -> Logs:
    logs = Logs(open_directory(path, disk), lambda _: LogOptions(config=CONFIG))
    logs.load(now_ms=0)

    def release() -> None:
        for log in logs.by_partition.values():
            log.abandon()
        logs.directory.close()

    close_after_the_test(release)
    return logs


def append(log: Log, epoch: int = 0) -> None:
    log.append_as_leader(records_batch([b"v" * 100]), LeaderEpoch(epoch), 5_000)


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def logs(tmp_path: Path, disk: FullDisk) -> Logs:
    logs = start(tmp_path, disk)
    for partition in (A, B):
        log = logs.create(partition, Uuid(b"topic-id-16bytes"), now_ms=0)
        for _ in range(60):
            append(log)
        log.raise_high_watermark(log.log_end_offset)
    return logs


def test_operations_that_need_space_are_refused_and_the_directory_stays_online(
    logs: Logs, disk: FullDisk
) -> None:
    log = logs.by_partition[A]
    before = len(log.segments)
    disk.is_full = True
    for use in (
        lambda: append(log),
        lambda: append(log, epoch=3),
        lambda: log.roll(0),
        lambda: run_here(logs.checkpoints.writing()),
        lambda: logs.create(TopicPartition("c", 0), None, now_ms=0),
        lambda: logs.truncate({A: Offset(10)}, 0),
    ):
        with pytest.raises(DiskFullError) as raised:
            use()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.directory.is_online
    assert (log.log_end_offset, log.epochs.latest_epoch, len(log.segments)) == (60, 0, before)
    assert len(values_of(log)) == 60


def test_records_and_topics_can_be_deleted_to_free_space(
    tmp_path: Path, logs: Logs, disk: FullDisk
) -> None:
    disk.is_full = True
    log = logs.by_partition[A]
    # All segments are too old, and there is no space for a new one.
    before = len(log.segments)
    assert delete_old_segments(log, now_ms=10**6) == before - 1
    logs.delete(B, Uuid(b"u" * 16), now_ms=0)
    assert run_here(logs.removing_deleted(10**9)) == before
    assert not list(tmp_path.glob("b-0*"))
    assert logs.directory.is_online
    disk.is_full = False
    append(log, epoch=1)
    run_here(logs.checkpoints.writing())
    assert B not in logs.directory.read_checkpoint(RECOVERY_POINT_FILE)


@pytest.mark.parametrize("is_clean", [True, False])
def test_with_space_again_nothing_is_missing(
    tmp_path: Path, logs: Logs, disk: FullDisk, *, is_clean: bool
) -> None:
    log = logs.by_partition[A]
    for number in range(40):
        disk.is_full = number % 2 == 0
        if disk.is_full:
            uses: list[Callable[[], object]] = [
                lambda: append(log),
                lambda: log.roll(0),
                lambda: run_here(logs.checkpoints.writing()),
            ]
            for use in uses:
                with pytest.raises(DiskFullError):
                    use()
        else:
            append(log, epoch=number // 10)
    wanted = values_of(log)
    assert len(wanted) == 80
    if is_clean:
        logs.stop()
    else:
        log.abandon()
        logs.by_partition[B].abandon()
        logs.directory.close()
    again = start(tmp_path, disk).by_partition[A]
    assert again.damage is None
    assert values_of(again) == wanted
    assert again.epochs.entries == log.epochs.entries


def test_a_stop_on_a_full_disk_is_not_clean_but_the_next_start_works(
    tmp_path: Path, logs: Logs, disk: FullDisk
) -> None:
    disk.is_full = True
    with pytest.raises(DiskFullError):
        logs.stop()
    assert {log.flushed_offset for log in logs.by_partition.values()} == {60}
    disk.is_full = False
    again = start(tmp_path, disk)
    assert again.directory.clean_stop_epoch is None
    assert len(values_of(again.by_partition[A])) == 60


def test_an_epoch_without_space_holds_back_the_recovery_point(
    tmp_path: Path, logs: Logs, disk: FullDisk
) -> None:
    log = logs.by_partition[A]
    log.flush()
    append(log, epoch=7)
    disk.is_full = True
    log.flush()
    assert (log.flushed_offset, log.recovery_point) == (61, 60)
    disk.is_full = False
    run_here(logs.checkpoints.writing())
    for each in logs.by_partition.values():
        each.abandon()
    logs.directory.close()
    again = start(tmp_path, disk).by_partition[A]
    assert again.epochs.entries == log.epochs.entries
    assert (again.epochs.latest_epoch, again.epochs.unwritten_from) == (7, None)
    append(again, epoch=8)
    again.flush()
    assert again.recovery_point == 62


@pytest.mark.parametrize("files_left", [0, 1, 2])
def test_remains_of_a_new_log_on_a_full_disk_do_not_block_the_next_topic(
    logs: Logs, disk: FullDisk, files_left: int
) -> None:
    made = TopicPartition("c", 0)
    disk.files_left = files_left
    with pytest.raises(DiskFullError):
        logs.create(made, Uuid(b"1" * 16), now_ms=0)
    disk.files_left, disk.is_full = None, False
    append(logs.create(made, Uuid(b"2" * 16), now_ms=0))
    assert logs.by_partition[made].topic_id == Uuid(b"2" * 16)


def test_a_deletion_of_records_spends_the_reserve(
    tmp_path: Path, logs: Logs, disk: FullDisk
) -> None:
    log = logs.by_partition[A]
    logs.directory.reserve.take(4_096)
    refuse_once = iter([True, False])

    def check_room(path: Path) -> None:
        if disk.is_full and next(refuse_once, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    disk.check_room = check_room  # type: ignore[method-assign]
    disk.is_full = True
    assert run_here(logs.deleting_records({log: Offset(7)})) == {log: 7}
    assert logs.directory.read_checkpoint(LOG_START_FILE)[A] == 7
    assert not (tmp_path / RESERVE_FILE).exists()


def test_without_a_reserve_the_deletion_of_records_is_refused(logs: Logs, disk: FullDisk) -> None:
    log = logs.by_partition[A]
    disk.is_full = True
    outcome = run_here(logs.deleting_records({log: Offset(7)}))[log]
    assert isinstance(outcome, DiskFullError)
    disk.is_full = False
    # A repetition makes the first one durable.
    assert run_here(logs.deleting_records({log: Offset(7)})) == {log: 7}
    assert logs.directory.read_checkpoint(LOG_START_FILE)[A] == 7


def test_no_log_is_made_on_a_full_disk(logs: Logs, disk: FullDisk) -> None:
    run_here(logs.checkpoints.writing())
    logs.delete(A, Uuid(b"u" * 16), now_ms=0)
    disk.is_full = True
    refused = run_here(logs.making({A: Uuid(b"another id 16 by")}, now_ms=0))
    assert isinstance(refused[A], DiskFullError)
    assert {*logs.by_partition} == {B}
    disk.is_full = False
    assert run_here(logs.making({A: Uuid(b"another id 16 by")}, now_ms=0)) == {}


def test_listeners_hear_of_a_refused_write_once_and_of_the_first_that_succeeds(
    logs: Logs, disk: FullDisk
) -> None:
    heard: list[str] = []
    logs.directory.on_refusal(
        lambda _directory, error: heard.append(str(error.code.name)),
        lambda _directory: heard.append("room"),
    )
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(DiskFullError):
            append(logs.by_partition[A])
    assert heard == ["KAFKA_STORAGE_ERROR"] * 2
    assert logs.directory.is_refusing
    disk.is_full = False
    append(logs.by_partition[A])
    assert heard[2:] == ["room"]
    assert not logs.directory.is_refusing


def test_a_small_write_does_not_prove_that_a_large_one_has_room(
    logs: Logs, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = logs.directory
    directory.write_refused(DiskFullError(directory.path, "no space"))
    directory.note_refused_size(1_000)
    monkeypatch.setattr(disk, "free_bytes", lambda _path: 1_999)
    directory.write_succeeded(999)
    assert directory.is_refusing

    def unknown(_path: Path) -> int:
        raise OSError(errno.EIO, "unknown")

    monkeypatch.setattr(disk, "free_bytes", unknown)
    directory.write_succeeded(999)
    assert directory.is_refusing
    directory.write_succeeded(1_000)
    assert not directory.is_refusing
