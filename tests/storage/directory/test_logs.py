"""All logs of a directory: creation, reopening, deletion, checkpoints, damage, clean stop."""

import errno
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from storage.log_maker import (
    CLUSTER,
    NODE,
    close_after_the_test,
    open_directory,
    records_batch,
    values_of,
)

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.logs import Logs
from moldau.storage.directory.partition_metadata import PARTITION_METADATA_FILE
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import DirectoryOfflineError
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.retention import delete_old_segments
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset, TopicPartition, Uuid

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
TOPIC_ID = Uuid(b"topic-id-16bytes")
UNIQUE = Uuid(b"u" * 16)
CONFIG = LogConfig(internal_segment_bytes=2_000, file_delete_delay_ms=1_000)


def options_for(_partition: TopicPartition) -> LogOptions:
    return LogOptions(config=CONFIG)


def start(path: Path, filesystem: FileSystem | None = None) -> Logs:
    logs = Logs(open_directory(path, filesystem), options_for)
    logs.load(now_ms=0)
    close_after_the_test(lambda: kill(logs))
    return logs


def kill(logs: Logs) -> None:
    """Like SIGKILL: written bytes stay, and nothing more is written."""
    for log in logs.by_partition.values():
        log.abandon()
    logs.directory.close()


def fill(log: Log, count: int = 30) -> None:
    for number in range(count):
        log.append_as_leader(records_batch([b"%03d" % number * 30]), LeaderEpoch(0), 5_000)
    log.raise_high_watermark(log.log_end_offset)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    made = start(tmp_path)
    for partition in (A, B):
        fill(made.create(partition, TOPIC_ID, now_ms=0))
    return made


def test_logs_are_found_again_after_a_clean_stop(tmp_path: Path, logs: Logs) -> None:
    wanted = {p: values_of(log) for p, log in logs.by_partition.items()}
    logs.stop(broker_epoch=9)
    again = start(tmp_path)
    assert again.directory.clean_stop_epoch == 9
    assert {p: values_of(log) for p, log in again.by_partition.items()} == wanted
    for log in again.by_partition.values():
        assert log.topic_id == TOPIC_ID
        assert (log.high_watermark, log.flushed_offset) == (30, 30)


def test_logs_are_found_again_after_a_crash(tmp_path: Path, logs: Logs) -> None:
    run_here(logs.checkpoints.writing())
    wanted = {p: values_of(log) for p, log in logs.by_partition.items()}
    kill(logs)
    again = start(tmp_path)
    assert again.directory.clean_stop_epoch is None
    assert {p: values_of(log) for p, log in again.by_partition.items()} == wanted
    assert again.by_partition[A].high_watermark == 30


def test_a_stop_after_a_crash_counts_once(tmp_path: Path, logs: Logs) -> None:
    logs.stop()
    kill(start(tmp_path))
    assert start(tmp_path).directory.clean_stop_epoch is None


@pytest.mark.parametrize("file_name", [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE])
@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\na 0 1\n", b"\xff\xfe\0"])
def test_a_broken_checkpoint_costs_time_but_no_record(
    tmp_path: Path, logs: Logs, file_name: str, content: bytes
) -> None:
    wanted = {p: values_of(log) for p, log in logs.by_partition.items()}
    run_here(logs.checkpoints.writing())
    kill(logs)
    (tmp_path / file_name).write_bytes(content)
    again = start(tmp_path)
    assert {p: values_of(log) for p, log in again.by_partition.items()} == wanted


# Deleting


def test_a_log_is_deleted_in_two_steps(tmp_path: Path, logs: Logs) -> None:
    logs.delete(A, UNIQUE, now_ms=0)
    assert A not in logs.by_partition
    name = f"a-0.{UNIQUE.hex()}-delete"
    assert (tmp_path / name).is_dir()
    assert not (tmp_path / "a-0").exists()
    assert A not in logs.directory.read_checkpoint(RECOVERY_POINT_FILE)
    assert run_here(logs.removing_deleted(999)) == 0
    assert run_here(logs.removing_deleted(1_000)) == 1
    assert not (tmp_path / name).exists()


def test_a_deletion_is_finished_after_a_restart(tmp_path: Path, logs: Logs) -> None:
    logs.delete(A, UNIQUE, now_ms=0)
    kill(logs)
    again = start(tmp_path)
    assert set(again.by_partition) == {B}
    assert run_here(again.removing_deleted(0)) == 1
    assert not list(tmp_path.glob("*-delete"))


def test_no_more_files_are_deleted_at_once_than_requested(tmp_path: Path, logs: Logs) -> None:
    for partition in (A, B):
        log = logs.by_partition[partition]
        log.advance_log_start(log.high_watermark)
        assert delete_old_segments(log, now_ms=0) > 2
    before = len(list(tmp_path.rglob("*.log.deleted")))
    assert run_here(logs.removing_deleted(10_000, count_max=2)) == 2
    assert len(list(tmp_path.rglob("*.log.deleted"))) == before - 2
    assert run_here(logs.removing_deleted(10_000)) == before - 2
    assert not list(tmp_path.rglob("*.deleted"))


def test_a_recreated_topic_does_not_inherit_checkpoints(tmp_path: Path, logs: Logs) -> None:
    run_here(logs.checkpoints.writing())
    logs.delete(A, UNIQUE, now_ms=0)
    logs.create(A, Uuid(b"another id 16 by"), now_ms=0)
    kill(logs)
    again = start(tmp_path)
    assert again.by_partition[A].damage is None
    assert again.by_partition[A].log_end_offset == 0
    assert again.by_partition[A].topic_id == b"another id 16 by"


# Moving between directories


def test_a_future_log_replaces_the_old_one(tmp_path: Path, logs: Logs) -> None:
    future = logs.create_future(A, TOPIC_ID, UNIQUE, now_ms=0)
    fill(future, 5)
    kill(logs)
    for log in logs.futures.values():
        log.abandon()
    again = start(tmp_path)
    assert again.futures[A].log_end_offset == 5
    again.delete(A, UNIQUE, now_ms=0)
    moved = run_here(again.promoting_future(A))
    assert moved.path == tmp_path / "a-0"
    fill(moved, 3)
    again.stop()
    assert start(tmp_path).by_partition[A].log_end_offset == 8


def test_logs_that_are_created_together_are_synced_together_and_survive_a_power_failure() -> None:
    path = Path("/logs")
    disk = SimulatedDisk()
    logs = start(path, disk)
    names = [TopicPartition("many", index) for index in range(5)]
    for name in names:
        logs.create(name, TOPIC_ID, now_ms=0)
    together: list[Path] = []

    def do_all(sync: Callable[[Path], None], paths: Sequence[Path]) -> Iterable[None]:
        together.extend(paths)
        return map(sync, paths)

    run_here(logs.syncing_names(do_all))
    assert len(together) == len(names)
    for _, crashed in disk.fork().variants_after_crash():
        again = start(path, crashed)
        assert {name: log.topic_id for name, log in again.by_partition.items()} == dict.fromkeys(
            names, TOPIC_ID
        )
    run_here(logs.syncing_names(do_all))
    assert len(together) == len(names)


def test_a_log_whose_creation_was_killed_survives_a_later_power_failure() -> None:
    path = Path("/logs")
    disk = SimulatedDisk()
    first = start(path, disk)
    # Killed before its names were synced: they and its topic id are in the page cache only.
    first.create(A, TOPIC_ID, now_ms=0)
    kill(first)
    second = start(path, disk)
    log = second.by_partition[A]
    fill(log, 3)
    log.flush()
    wanted = values_of(log)
    kill(second)
    third = start(path, disk.after_crash(lambda _change: False))
    assert not third.unreadable
    assert third.by_partition[A].topic_id == TOPIC_ID
    assert values_of(third.by_partition[A]) == wanted


def test_others_run_between_two_logs_that_are_made_together() -> None:
    logs = start(Path("/logs"), SimulatedDisk())
    wanted = {TopicPartition("many", index): TOPIC_ID for index in range(5)}
    made: set[int] = set()
    for step in logs.making(wanted, now_ms=0):
        made.add(len(logs.by_partition))
        step()
    assert {*wanted} == {*logs.by_partition}
    assert made >= {1, 2, 3, 4, 5}


def test_a_copy_that_was_deleted_cannot_replace_its_log(tmp_path: Path, logs: Logs) -> None:
    logs.create_future(A, TOPIC_ID, UNIQUE, now_ms=0)
    logs.delete(A, UNIQUE, now_ms=0)
    steps = logs.promoting_future(A)
    logs.delete(A, Uuid(b"v" * 16), now_ms=0)
    with pytest.raises(KafkaError, match="was deleted") as refused:
        run_here(steps)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.directory.is_online


def test_a_log_that_the_cluster_does_not_know_is_kept_beside_the_others(
    tmp_path: Path, logs: Logs
) -> None:
    name = logs.set_aside(A, UNIQUE)
    assert name.endswith("-stray")
    assert {*logs.by_partition} == {B}
    assert list((tmp_path / name).glob("*.log"))
    kill(logs)
    assert {*start(tmp_path).by_partition} == {B}


# Names that are in use


def test_a_directory_of_another_topic_is_not_taken_over(tmp_path: Path, logs: Logs) -> None:
    logs.abandon()
    again = Logs(open_directory(tmp_path), options_for)
    with pytest.raises(KafkaError, match="belongs to topic id") as refused:
        again.create(A, Uuid(b"another id 16 by"), now_ms=0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    (tmp_path / "b-3" / PARTITION_METADATA_FILE).write_bytes(b"garbage")
    with pytest.raises(KafkaError, match="already exists"):
        again.create(B, TOPIC_ID, now_ms=0)
    assert again.directory.is_online
    again.directory.close()
    assert values_of(start(tmp_path).by_partition[A])


def test_logs_that_are_made_together_fail_one_by_one(tmp_path: Path, logs: Logs) -> None:
    logs.abandon()
    again = Logs(open_directory(tmp_path), options_for)
    new = TopicPartition("new", 0)
    ids = {A: Uuid(b"another id 16 by"), new: TOPIC_ID}
    refused = run_here(again.making(ids, now_ms=0))
    assert {*refused} == {A}
    assert {*again.by_partition} == {new}
    # What exists is not made again.
    assert run_here(again.making({new: TOPIC_ID}, now_ms=0)) == {}
    close_after_the_test(again.abandon)


def test_an_interrupted_creation_is_removed_and_records_are_not(tmp_path: Path, logs: Logs) -> None:
    empty = TopicPartition("empty", 0)
    logs.create(empty, TOPIC_ID, now_ms=0)
    for name in ("empty-0", "a-0"):
        (tmp_path / name / PARTITION_METADATA_FILE).write_bytes(b"")
    kill(logs)
    again = start(tmp_path)
    assert {*again.by_partition} == {B}
    assert {*again.unreadable} == {"a-0"}
    assert not (tmp_path / "empty-0").exists()


# Truncation


def test_a_deleted_record_stays_deleted_after_a_crash(tmp_path: Path, logs: Logs) -> None:
    log = logs.by_partition[A]
    assert run_here(logs.deleting_records({log: Offset(17)})) == {log: 17}
    kill(logs)
    again = start(tmp_path)
    assert again.by_partition[A].log_start_offset == 17
    assert len(values_of(again.by_partition[A])) == 13


def test_a_crash_after_a_truncation_raises_no_false_alarm() -> None:
    """Crashes at every effect of the truncation and of the appends after it."""
    path = Path("/logs")
    disk = SimulatedDisk()
    logs = start(path, disk)
    fill(logs.create(A, TOPIC_ID, now_ms=0))
    run_here(logs.syncing_names())
    logs.by_partition[A].flush()
    run_here(logs.checkpoints.writing())
    forks: list[SimulatedDisk] = []
    disk.on_effect(lambda _: forks.append(disk.fork()))
    assert logs.truncate({A: Offset(4)}, now_ms=0) == {A}
    fill(logs.by_partition[A], 2)
    for fork in forks:
        for _, crashed in fork.variants_after_crash():
            again = start(path, crashed)
            assert again.by_partition[A].damage is None
            assert 4 <= again.by_partition[A].log_end_offset <= 30


def test_a_full_truncation_survives_a_crash(tmp_path: Path, logs: Logs) -> None:
    run_here(logs.checkpoints.writing())
    logs.truncate_fully_and_start_at(A, Offset(500), now_ms=0)
    kill(logs)
    log = start(tmp_path).by_partition[A]
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (500, 500, None)


# Damage and failure


def damage_first_batch(tmp_path: Path) -> None:
    target = tmp_path / "a-0" / "00000000000000000000.log"
    content = bytearray(target.read_bytes())
    content[80] ^= 1
    target.write_bytes(content)


def test_one_damaged_log_does_not_stop_the_others(tmp_path: Path, logs: Logs) -> None:
    run_here(logs.checkpoints.writing())
    kill(logs)
    damage_first_batch(tmp_path)
    for _ in range(2):
        again = start(tmp_path)
        damage = again.by_partition[A].damage
        assert damage is not None
        assert (damage.first_offset, damage.promised_end) == (0, 30)
        with pytest.raises(KafkaError) as raised:
            again.by_partition[A].read(Offset(0), 100)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(values_of(again.by_partition[B])) == 30
        # Neither a checkpoint nor a clean stop hides the damage.
        run_here(again.checkpoints.writing())
        again.stop()


def test_accepted_damage_is_put_aside_and_the_log_is_in_use_again(
    tmp_path: Path, logs: Logs
) -> None:
    run_here(logs.checkpoints.writing())
    kill(logs)
    damage_first_batch(tmp_path)
    again = start(tmp_path)
    log = again.accept_damage(A, now_ms=0)
    assert log.damage is None
    assert (log.log_end_offset, log.topic_id) == (0, TOPIC_ID)
    kept = sorted(p.name for p in (tmp_path / "a-0" / "quarantine").iterdir())
    assert kept[0] == "00000000000000000000.log"
    assert len(kept) > 1
    fill(log, 3)
    again.stop()
    assert start(tmp_path).by_partition[A].log_end_offset == 3


def test_a_log_that_cannot_be_opened_is_reported(tmp_path: Path, logs: Logs) -> None:
    logs.stop()
    (tmp_path / "a-0" / "partition.metadata").write_bytes(b"nonsense")
    again = start(tmp_path)
    assert set(again.by_partition) == {B}
    assert "a-0" in again.unreadable


def test_foreign_directories_are_reported_and_the_metadata_log_is_left_alone(
    tmp_path: Path, logs: Logs
) -> None:
    logs.stop()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    again = start(tmp_path)
    assert again.unknown_names == ["lost+found"]
    assert set(again.by_partition) == {A, B}


def test_a_failed_directory_gets_no_marker() -> None:
    path = Path("/logs")
    disk = SimulatedDisk()
    logs = start(path, disk)
    fill(logs.create(A, TOPIC_ID, now_ms=0))
    disk.fail_at(disk.effects + 1, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(DirectoryOfflineError):
        logs.stop()
    assert not logs.directory.is_online
    again = LogDirectory.open(disk.fork(), path, cluster_id=CLUSTER, node_id=NODE)
    assert again.clean_stop_epoch is None


def test_flush_ms_selects_logs_that_waited_long_enough(tmp_path: Path) -> None:
    def options(_partition: TopicPartition) -> LogOptions:
        return LogOptions(config=LogConfig(flush_ms=100))

    logs = Logs(open_directory(tmp_path, DiskFileSystem()), options)
    log = logs.create(A, None, now_ms=0)
    fill(log, 2)
    assert logs.due_for_flush(1_000) == []
    assert logs.due_for_flush(1_099) == []
    assert logs.due_for_flush(1_100) == [log]
    log.flush()
    assert logs.due_for_flush(2_000) == []


def test_logs_without_flush_ms_are_never_due(tmp_path: Path, logs: Logs) -> None:
    assert logs.by_partition[A].flushed_offset < logs.by_partition[A].log_end_offset
    assert logs.due_for_flush(0) == []
    assert logs.due_for_flush(10**12) == []
