"""Background work on logs, and the state that a stop or a crash leaves."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from broker.data_node import DataNode, batch, running, values_of
from support.proofs import proves
from support.waiting import take_turns, until

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE
from moldau.storage.directory.directory import CLEAN_STOP_FILE
from moldau.storage.disk.failures import InvalidIndexEntryError
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.storage.log.retention import delete_old_segments
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset

SMALL = {"internal.segment.bytes": "500"}


async def fill(node: DataNode, *values: bytes, key: bytes = b"key") -> None:
    partition = node.replicas.lookup("orders", 0)
    last = -1
    for value in values:
        last = partition.append(batch(value, key=key)).last_offset
    await partition.wait_committed(Offset(last))


async def test_old_segments_go_after_their_time_and_their_files_later(tmp_path: Path) -> None:
    configs = SMALL | {"retention.ms": "1000", "file.delete.delay.ms": "5000"}
    async with running(tmp_path) as node:
        node.create_topic("orders", configs=configs)
        await fill(node, *[b"x" * 100] * 10)
        log = node.replicas.lookup("orders", 0).log
        assert len(log.segments) > 1
        node.clock.advance(node.settings.current.log_retention_check_interval_ms + 2_000)
        await until(lambda: log.log_start_offset == 10)
        folder = log.path
        assert any(path.suffix == ".deleted" for path in folder.iterdir())
        node.clock.advance(7_000)
        await until(lambda: not any(p.suffix == ".deleted" for p in folder.iterdir()))


class WatchedDisk(SimulatedDisk):
    """Records the threads that remove files of the node's partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.removers: set[str] = set()

    def remove(self, path: Path) -> None:
        if path.name.endswith(".deleted"):
            self.removers.add(threading.current_thread().name)
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        self.removers.add(threading.current_thread().name)
        super().remove_tree(path)


async def test_no_request_waits_while_a_file_system_frees_deleted_files() -> None:
    configs = SMALL | {"retention.ms": "1000", "file.delete.delay.ms": "0"}
    disk = WatchedDisk()
    async with running(Path("/disk"), filesystem=disk) as node:
        node.create_topic("orders", configs=configs)
        await fill(node, *[b"x" * 100] * 10)
        log = node.replicas.lookup("orders", 0).log
        node.clock.advance(node.settings.current.log_retention_check_interval_ms + 2_000)
        await until(lambda: log.log_start_offset == 10)
        node.clock.advance(2_000)
        await until(lambda: not any("deleted" in name for name in disk.list_directory(log.path)))
        node.delete_topic()
        node.clock.advance(60_000)
        await until(lambda: not any("-delete" in n for n in disk.list_directory(log.path.parent)))
        assert disk.removers
        assert all(name.startswith("moldau-disk") for name in disk.removers)


async def test_the_largest_logs_are_cut_to_their_size(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs=SMALL | {"retention.bytes": "1000"})
        await fill(node, *[b"x" * 100] * 20)
        log = node.replicas.lookup("orders", 0).log
        node.clock.advance(node.settings.current.log_retention_check_interval_ms + 2_000)
        await until(lambda: log.log_start_offset > 0)
        assert log.segments.size_in_bytes < 2_000


async def test_compacted_topics_keep_the_last_value_of_each_key(tmp_path: Path) -> None:
    configs = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    async with running(tmp_path) as node:
        node.create_topic("orders", configs=configs)
        for number in range(20):
            await fill(node, b"%d" % number * 20, key=b"even" if number % 2 == 0 else b"odd")
        log = node.replicas.lookup("orders", 0).log
        before = log.segments.size_in_bytes
        node.clock.advance(node.settings.current.log_cleaner_backoff_ms + 1)
        await until(lambda: log.segments.size_in_bytes < before)
        values: list[bytes | None] = []
        offset = 0
        while (found := log.read(Offset(offset), 10**6)).records:
            values += values_of(found.records)
            offset = found.next_offset
        assert values[-2:] == [b"18" * 20, b"19" * 20]
        assert len(values) < 20


async def test_the_number_of_compactions_at_a_time_changes_at_run_time(tmp_path: Path) -> None:
    configs = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    slow = {"log.cleaner.io.max.bytes.per.second": "1"}
    async with running(tmp_path, settings=slow) as node:
        node.create_topic("orders", partitions=4, configs=configs)
        for index in range(4):
            partition = node.replicas.lookup("orders", index)
            appended = [partition.append(batch(b"x" * 100)) for _ in range(20)]
            await partition.wait_committed(appended[-1].last_offset)
        cleaning = node.replicas.cleaning
        node.clock.advance(node.settings.current.log_cleaner_backoff_ms + 1)
        await until(lambda: cleaning.running_count == 1)
        node.switch("log.cleaner.threads", on=2)
        await until(lambda: cleaning.running_count == 2)
        node.switch("log.cleaner.threads", on=4)
        await until(lambda: cleaning.running_count == 4)
        # Two of them are not replaced when they end; their current passes are completed.
        node.switch("log.cleaner.threads", on=2)
        assert cleaning.running_count == 4


async def test_a_topic_deleted_during_its_compaction_does_no_harm(tmp_path: Path) -> None:
    configs = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    slow = {"log.cleaner.io.max.bytes.per.second": "100000"}
    async with running(tmp_path, settings=slow) as node:
        node.create_topic("orders", configs=configs)
        await fill(node, *[b"x" * 200] * 100)
        node.clock.advance(node.settings.current.log_cleaner_backoff_ms + 1)
        cleaning = node.replicas.cleaning
        await until(lambda: cleaning.running_count == 1)
        node.delete_topic()
        node.create_topic("orders", number=2)
        await fill(node, b"a")
        await until(lambda: cleaning.running_count == 0)
        assert node.directories[0].is_online


class OddDisk(DiskFileSystem):
    """Fails for one partition in an unexpected way."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def modified_ms(self, path: Path) -> int:
        if path.parent.name == "orders-0":
            raise self.error
        return super().modified_ms(path)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if path.parent.name == "orders-0" and path.name.endswith(".log.cleaned"):
            raise self.error
        return super().open(path, create=create)


UNFORESEEN = [RuntimeError("odd"), InvalidIndexEntryError("odd")]


async def fill_both(node: DataNode, **configs: str) -> None:
    node.create_topic("orders", partitions=2, configs=SMALL | configs)
    for index in range(2):
        partition = node.replicas.lookup("orders", index)
        appended = [partition.append(batch(b"x" * 100, timestamp_ms=-1)) for _ in range(20)]
        await partition.wait_committed(appended[-1].last_offset)


@pytest.mark.parametrize("error", UNFORESEEN)
async def test_retention_that_fails_for_one_log_continues_with_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with running(tmp_path, filesystem=OddDisk(error)) as node:
        await fill_both(node, **{"retention.ms": "1000"})
        odd, other = (node.replicas.lookup("orders", index).log for index in range(2))
        for _ in range(2):
            node.clock.advance(node.settings.current.log_retention_check_interval_ms + 2_000)
            await until(lambda: other.log_start_offset == 20)
        assert odd.log_start_offset == 0
        assert node.replicas.reports.failures["retention"] > 0
        assert "retention of orders-0 failed unexpectedly" in caplog.text


@pytest.mark.parametrize("error", UNFORESEEN)
async def test_a_log_whose_compaction_fails_is_left_alone_and_the_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with running(tmp_path, filesystem=OddDisk(error)) as node:
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        await fill_both(node, **settings)
        odd, other = (node.replicas.lookup("orders", index).log for index in range(2))
        before = odd.segments.size_in_bytes
        pause_ms = node.settings.current.log_cleaner_backoff_ms + 1
        node.clock.advance(pause_ms)
        await until(lambda: "orders-0 will not be compacted again" in caplog.text)
        assert other.segments.size_in_bytes == before, "not at once"
        node.clock.advance(pause_ms)
        await until(lambda: other.segments.size_in_bytes < before)
        assert odd.segments.size_in_bytes == before
        assert caplog.text.count("will not be compacted again") == 1


async def test_checkpoints_are_written_from_time_to_time(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a", b"b")
        node.clock.advance(61_000)
        folder = node.directory_paths[0]

        def has(file_name: str) -> bool:
            path = folder / file_name
            return path.exists() and "orders 0 2" in path.read_text()

        await until(lambda: has(HIGH_WATERMARK_FILE) and has(RECOVERY_POINT_FILE))


async def test_producers_that_are_silent_for_a_day_are_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        partition.append(batch(b"a", producer_id=4, producer_epoch=0, base_sequence=0))
        await asyncio.sleep(0)  # the background begins to wait
        assert partition.log.producers.entry(4) is not None
        node.clock.advance(86_400_000 + 600_000)
        await until(lambda: partition.log.producers.entry(4) is None)


async def test_flush_ms_flushes_where_the_kernel_would_take_its_time(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"moldau.flush.policy": "os"}) as node:
        node.create_topic("orders", configs={"flush.ms": "500"})
        partition = node.replicas.lookup("orders", 0)
        partition.append(batch(b"a"))
        assert partition.log.high_watermark == 1, "the policy os commits what is written"
        assert partition.log.flushed_offset == 0
        for _ in range(3):
            node.clock.advance(1_100)
            await take_turns()
        await until(lambda: partition.log.flushed_offset == 1)


async def test_a_clean_stop_leaves_its_marker_and_a_crash_does_not(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        await node.stop()
        marker = node.directory_paths[0] / CLEAN_STOP_FILE
        assert '"brokerEpoch":3' in marker.read_text()
        await node.start()
        assert not marker.exists()
        await fill(node, b"b")
        await node.crash()
        assert not marker.exists()
        await node.start()
        log = node.replicas.lookup("orders", 0).log
        assert log.high_watermark == log.flushed_offset == 2


async def test_settings_of_running_logs_change(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        node.configure("orders", max_message_bytes="100")
        partition = node.replicas.lookup("orders", 0)
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(b"x" * 200))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        node.configure("orders", max_message_bytes="1000", min_insync_replicas="2")
        partition.append(batch(b"x" * 200))
        assert partition.min_insync_replicas == 2


@proves("moldau.flush.interval.ms")
async def test_the_next_round_of_syncs_waits_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append during a round is covered by the next one."""
    began, may_end = threading.Event(), threading.Event()
    sync = DiskFile.sync

    def slow(file: DiskFile) -> None:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            may_end.wait()
        sync(file)

    settings = {"moldau.flush.policy": "group", "moldau.flush.interval.ms": "100000"}
    async with running(tmp_path, settings=settings) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        partition.append(batch(b"first"))
        node.clock.advance(200_000)
        await until(lambda: partition.log.flushed_offset == 1)
        monkeypatch.setattr(DiskFile, "sync", slow)
        partition.append(batch(b"a"))
        await until(began.is_set)
        partition.append(batch(b"b"))
        may_end.set()
        await until(lambda: partition.log.flushed_offset == 2)
        node.clock.advance(90_000)
        for _ in range(50):
            await asyncio.sleep(0)
        assert partition.log.flushed_offset == 2
        node.clock.advance(20_000)
        await until(lambda: partition.log.flushed_offset == 3)


async def test_coordinators_logs_are_flushed_regardless_of_the_policy(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"moldau.flush.policy": "os"}) as node:
        node.create_topic("__consumer_offsets")
        assert node.replicas.lookup("__consumer_offsets", 0).log.flush_policy == "group"


async def test_strict_appends_are_on_the_disk_before_they_are_visible(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"moldau.flush.policy": "strict"}) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        partition.append(batch(b"a"))
        assert partition.log.owes_flush, "also those with acks=1 wait"
        assert partition.log.high_watermark == 0
        await partition.wait_committed(Offset(0))
        assert not partition.log.owes_flush
        assert partition.log.flushed_offset == partition.log.high_watermark == 1


# Damage


def break_log(node: DataNode) -> None:
    path = node.directory_paths[0] / "orders-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:70])


async def test_a_damaged_log_refuses_all_work_and_says_how_to_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a", b"b")
        await node.stop()
        node.forget_clean_stop()
        break_log(node)
        await node.start()
        with pytest.raises(KafkaError) as refused:
            node.replicas.lookup("orders", 0).append(batch(b"c"))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "moldau.accept.damage=true" in caplog.text
        await node.stop()
        node.settings.current = node.settings.current.with_changes(moldau_accept_damage=True)
        await node.start()
        partition = node.replicas.lookup("orders", 0)
        assert partition.append(batch(b"c")).first_offset == 0
        assert list((partition.log.path / "quarantine").iterdir())


async def test_under_the_policy_os_a_crash_may_cost_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, settings={"moldau.flush.policy": "os"}) as node:
        node.create_topic("orders")
        await fill(node, b"a", b"b")
        await node.stop()
        node.forget_clean_stop()
        break_log(node)
        await node.start()
        partition = node.replicas.lookup("orders", 0)
        assert partition.log.log_end_offset == 0
        assert "offsets 0 to 1" in caplog.text
        partition.append(batch(b"c"))


# The disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
async def test_a_disk_that_accepts_no_writes_refuses_appends_and_reads_continue(
    number: int, tmp_path: Path
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, filesystem=disk) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        partition = node.replicas.lookup("orders", 0)
        disk.fail_at(disk.effects + 1, OSError(number, "no writing"))
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(b"b"))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(partition.log.read(Offset(0), 1000).records) == [b"a"]
        await fill(node, b"c")
        assert values_of(partition.log.read(Offset(0), 1000).records) == [b"a", b"c"]


async def test_a_failed_sync_takes_the_directory_offline_and_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, filesystem=disk) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        partition = node.replicas.lookup("orders", 0)
        waiting = partition.wait_committed(partition.append(batch(b"b")).last_offset)
        disk.fail_at(disk.effects + 1, OSError(errno.EIO, "Input/output error"))
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not node.directories[0].is_online
        with pytest.raises(KafkaError):
            node.replicas.lookup("orders", 0)


async def test_nothing_is_deleted_from_a_disk_that_became_read_only(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, filesystem=disk) as node:
        node.create_topic("orders", configs=SMALL | {"retention.ms": "1000"})
        await fill(node, *[b"x" * 100] * 10)
        log = node.replicas.lookup("orders", 0).log
        segments = len(log.segments)
        for effect in range(disk.effects + 1, disk.effects + 10):
            disk.fail_at(effect, OSError(errno.EROFS, "Read-only file system"))
        with pytest.raises(KafkaError) as refused:
            delete_old_segments(log, node.clock.wall_ms() + 5_000)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.directories[0].is_online
        assert len(log.segments) == segments


async def test_failures_of_background_work_are_logged_once_a_minute_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no")
        for _ in range(3):
            node.replicas.reports.failed("retention", "orders-0", refusal)
        assert node.replicas.reports.failures == {"retention": 3}
        told = [each for each in caplog.messages if "retention of orders-0 failed" in each]
        assert len(told) == 1
        node.clock.advance(61_000)
        node.replicas.reports.failed("retention", "orders-0", refusal)
        assert "4 failures" in caplog.messages[-1]
