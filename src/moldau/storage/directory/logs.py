"""All logs of one log directory: loading, creation, deletion in two steps, clean stop. Checkpoints
are lowered before a log is truncated (see log_checkpoints.py).
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory import clean_stop_manifest as manifest
from moldau.storage.directory.checkpoints import LOG_START_FILE
from moldau.storage.directory.directory import DirectoryKind, LogDirectory, PartitionDirectory
from moldau.storage.directory.log_checkpoints import LogCheckpoints
from moldau.storage.directory.partition_metadata import (
    PARTITION_METADATA_FILE,
    check_owner,
    read_topic_id,
    write_topic_id_unsynced,
)
from moldau.storage.directory.unsynced_names import DoAll, UnsyncedNames
from moldau.storage.disk.disk_steps import Steps, others_first, run_here
from moldau.storage.disk.failures import (
    CorruptCheckpointError,
    DamagedFileError,
    DirectoryOfflineError,
    DiskFullError,
    refused_if_full,
)
from moldau.storage.log.damage import quarantine
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.types import (
    FIRST_OFFSET,
    INT64_MAX,
    NO_BROKER_EPOCH,
    Offset,
    TopicPartition,
    Uuid,
)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

OptionsFor = Callable[[TopicPartition], LogOptions]


class DeletedDirectory(NamedTuple):
    name: str
    due_ms: int


class Logs:
    """`by_partition` are the logs in use, `futures` the copies that are being moved into this
    directory, `unreadable` the logs that could not be opened. Damaged logs are in use and refuse
    all work.
    """

    def __init__(self, directory: LogDirectory, options_for: OptionsFor) -> None:
        self.directory = directory
        self.by_partition: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        self.unreadable: dict[str, Exception] = {}
        self.unknown_names: list[str] = []
        self._options_for = options_for
        self._deleted: list[DeletedDirectory] = []
        self._dirty_since_ms: dict[Log, int] = {}
        self.checkpoints = LogCheckpoints(directory, self.by_partition)
        self._names = UnsyncedNames(directory)

    # Loading

    def load(self, now_ms: int, on_log: Callable[[int, int], None] = lambda _n, _all: None) -> None:
        """Opens every log. Fast after a clean stop, a scan after a crash. `on_log` is called with
        the number of logs opened so far and their total.
        """
        is_clean = self.directory.clean_stop_epoch is not None
        stored = self.checkpoints.read()
        inventories = self._take_out_manifest() if is_clean else {}
        found, self.unknown_names = self.directory.list_partitions()
        for number, entry in enumerate(found):
            on_log(number, len(found))
            partition = entry.topic_partition
            if entry.kind is DirectoryKind.DELETED:
                self._deleted.append(DeletedDirectory(entry.name, now_ms))
            elif entry.kind is DirectoryKind.STRAY or partition.topic == CLUSTER_METADATA_TOPIC:
                continue
            else:
                checkpointed = Checkpointed()
                if entry.kind is DirectoryKind.PARTITION:
                    checkpointed = stored.of(partition, inventories.get(entry.name))
                self._load_one(entry, checkpointed, is_clean=is_clean, now_ms=now_ms)
        if not is_clean:
            # A killed process may have left all names here in the page cache only.
            self._names.renamed()
            for log in self._all():
                self._names.created(log.path)
            run_here(self.syncing_names())

    def _take_out_manifest(self) -> dict[str, manifest.LogInventory]:
        """Reads and removes the manifest: it describes the last stop, so it would be wrong after a
        crash of this node.
        """
        with self.directory.offline_on_error:
            inventories = manifest.read_manifest(self.directory.filesystem, self.directory.path)
            manifest.drop_manifest(self.directory.filesystem, self.directory.path)
            return inventories

    def _load_one(
        self, entry: PartitionDirectory, checkpointed: Checkpointed, *, is_clean: bool, now_ms: int
    ) -> None:
        partition = entry.topic_partition
        is_current = entry.kind is DirectoryKind.PARTITION
        try:
            log = self._open(entry.name, partition, checkpointed, is_clean=is_clean, now_ms=now_ms)
            if not self._identify(log):
                return
        except DirectoryOfflineError:
            raise
        except (DamagedFileError, KafkaError) as error:
            self.unreadable[entry.name] = error
            if is_current:
                self.checkpoints.promised[partition] = checkpointed
            return
        if log.damage is not None and is_current:
            self.checkpoints.promised[partition] = checkpointed
        logs = self.by_partition if is_current else self.futures
        if partition in logs:
            log.abandon()
            self.unreadable[entry.name] = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{logs[partition].path.name} is already this partition",
            )
            return
        logs[partition] = log
        self.directory.recovered.logs += 1

    def _identify(self, log: Log) -> bool:
        """False if a crash interrupted the log's creation before any record: then it is removed."""
        filesystem = self.directory.filesystem
        try:
            with self.directory.offline_on_error:
                log.topic_id = read_topic_id(filesystem, log.path / PARTITION_METADATA_FILE)
        except CorruptCheckpointError:
            log.abandon()
            if log.damage is not None or log.log_end_offset > 0:
                raise
            with self.directory.offline_on_error:
                filesystem.remove_tree(log.path)
            return False
        return True

    def _open(
        self,
        name: str,
        partition: TopicPartition,
        checkpointed: Checkpointed,
        *,
        is_clean: bool,
        now_ms: int,
        is_new: bool = False,
    ) -> Log:
        location = LogLocation(
            directory=self.directory,
            path=self.directory.path / name,
            topic_partition=partition,
            is_new=is_new,
        )
        options = self._options_for(partition)
        return open_log(location, options, checkpointed, is_clean=is_clean, now_ms=now_ms)

    # Creation and deletion

    def create(self, partition: TopicPartition, topic_id: Uuid | None, now_ms: int) -> Log:
        """Drive `syncing_names` before the first record is appended."""
        assert partition not in self.by_partition
        run_here(self.checkpoints.forgetting([partition]))
        path = self.directory.path_of(partition)
        log = self._create(path.name, partition, topic_id, now_ms)
        self.by_partition[partition] = log
        return log

    def create_future(
        self, partition: TopicPartition, topic_id: Uuid | None, unique_id: Uuid, now_ms: int
    ) -> Log:
        """A copy that is being moved in from another directory."""
        assert partition not in self.futures
        with self.directory.offline_on_error:
            check_owner(self.directory.filesystem, self.directory.path_of(partition), topic_id)
        path = self.directory.path_of(partition, DirectoryKind.FUTURE, unique_id)
        log = self._create(path.name, partition, topic_id, now_ms)
        self.futures[partition] = log
        return log

    def making(
        self, topic_ids: Mapping[TopicPartition, Uuid], now_ms: int, do_all: DoAll = map
    ) -> Steps[dict[TopicPartition, KafkaError]]:
        """Creates these logs, one per step, and makes them durable. Returns the errors of those
        that failed. Creating a file syncs nothing, but may wait for running syncs.
        """
        refused: dict[TopicPartition, KafkaError] = {}
        try:
            yield from self.checkpoints.forgetting(topic_ids)
        except DiskFullError as error:
            return dict.fromkeys(topic_ids, error)
        for partition, topic_id in topic_ids.items():
            try:
                if partition not in self.by_partition:
                    self.create(partition, topic_id, now_ms)
            except KafkaError as error:
                refused[partition] = error
            yield others_first
        yield from self.syncing_names(do_all)
        return refused

    def _create(
        self, name: str, partition: TopicPartition, topic_id: Uuid | None, now_ms: int
    ) -> Log:
        path = self.directory.path / name
        if name in self.unreadable:
            # The unreadable log may hold records of another topic.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{path} already exists: {self.unreadable[name]}"
            )
        filesystem = self.directory.filesystem
        with self.directory.offline_on_error:
            check_owner(filesystem, path, topic_id)
            was_there = filesystem.exists(path)
        try:
            with self.directory.offline_on_error:
                with refused_if_full(path):
                    filesystem.make_directory(path)
                if topic_id is not None:
                    write_topic_id_unsynced(filesystem, path / PARTITION_METADATA_FILE, topic_id)
                self._names.created(path)
            log = self._open(
                name, partition, Checkpointed(), is_clean=False, now_ms=now_ms, is_new=True
            )
        except DiskFullError:
            # Left in place, the files would be mistaken for a log of the next topic with that name.
            if not was_there:
                with self.directory.offline_on_error:
                    filesystem.remove_tree(path)
            raise
        log.topic_id = topic_id
        return log

    def promoting_future(self, partition: TopicPartition) -> Steps[Log]:
        """The copy has caught up: it replaces the current log and takes its name."""
        assert partition not in self.by_partition
        yield from self.checkpoints.forgetting([partition])
        log = self.futures.get(partition)
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the copy of {partition} was deleted")
        target = self.directory.path_of(partition)
        with self.directory.offline_on_error:
            self.directory.filesystem.rename(log.path, target)
            log.moved_to(target)
            self.by_partition[partition] = self.futures.pop(partition)
            yield lambda: self.directory.filesystem.sync_directory(self.directory.path)
        return log

    def delete(self, partition: TopicPartition, unique_id: Uuid, now_ms: int) -> None:
        """First step: takes the log out of use and renames its directory to `…-delete`."""
        log, name = self._take_out(partition, DirectoryKind.DELETED, unique_id)
        due_ms = now_ms + log.config.file_delete_delay_ms
        self._deleted.append(DeletedDirectory(name, due_ms))

    def set_aside(self, partition: TopicPartition, unique_id: Uuid) -> str:
        """Renames a log that the cluster does not know to `…-stray`; it is not removed."""
        return self._take_out(partition, DirectoryKind.STRAY, unique_id)[1]

    def _take_out(
        self, partition: TopicPartition, kind: DirectoryKind, unique_id: Uuid
    ) -> tuple[Log, str]:
        log = self.by_partition.pop(partition, None) or self.futures.pop(partition)
        log.abandon()
        self.checkpoints.promised.pop(partition, None)
        self._dirty_since_ms.pop(log, None)
        target = self.directory.path_of(partition, kind, unique_id)
        with self.directory.offline_on_error:
            self.directory.filesystem.rename(log.path, target)
        self._names.renamed()
        return log, target.name

    def syncing_names(self, do_all: DoAll = map) -> Steps[None]:
        """Makes all creations, deletions and renames since the last call durable; topic ids must be
        on the disk before the first record. There may be a thousand: `do_all` may use threads.
        """
        return self._names.syncing(do_all)

    def removing_deleted(self, now_ms: int, count_max: int | None = None) -> Steps[int]:
        """Second step, for up to `count_max` segments and as many logs. Returns the total."""
        removed = 0
        for log in self._all():
            left = None if count_max is None else count_max - removed
            if left == 0:
                break
            if log.damage is None and not log.is_abandoned:
                removed += yield from log.removing_deleted(now_ms, left)
        due = [entry for entry in self._deleted if entry.due_ms <= now_ms][:count_max]
        for entry in due:
            path = self.directory.path / entry.name
            with self.directory.offline_on_error:
                yield partial(self.directory.filesystem.remove_tree, path)
            self._deleted.remove(entry)
        return removed + len(due)

    # Truncation, in an order in which a crash never looks like lost records

    def truncate(
        self, offsets: Mapping[TopicPartition, Offset], now_ms: int
    ) -> set[TopicPartition]:
        """As `Log.truncate_to`, with the checkpoints lowered first. Handles many logs at once, as
        after a change of leaders. Returns those that got shorter.
        """
        cut = {
            partition: self.by_partition[partition].end_before(offset)
            for partition, offset in offsets.items()
            if offset
            < max(
                self.by_partition[partition].flushed_offset,
                self.by_partition[partition].high_watermark,
            )
        }
        if cut:
            run_here(self.checkpoints.lowering(cut))
        return {
            partition
            for partition, offset in offsets.items()
            if self.by_partition[partition].truncate_to(offset, now_ms)
        }

    def truncate_fully_and_start_at(
        self,
        partition: TopicPartition,
        offset: Offset,
        now_ms: int,
        *,
        log_start_offset: Offset | None = None,
    ) -> None:
        run_here(self.checkpoints.lowering({partition: FIRST_OFFSET}))
        log = self.by_partition[partition]
        start = offset if log_start_offset is None else log_start_offset
        run_here(log.starting_over(offset, start, now_ms))
        with contextlib.suppress(DiskFullError):
            run_here(self.checkpoints.writing())

    def deleting_records(
        self, offsets: Mapping[Log, Offset]
    ) -> Steps[dict[Log, Offset | KafkaError]]:
        """Moves the logs' start offsets. Yields the new start of each, or the error. The change is
        durable when this returns, so it may be acknowledged.
        """
        results: dict[Log, Offset | KafkaError] = {}
        is_moved = False
        for log, offset in offsets.items():
            try:
                with log.damage_handler:
                    is_moved |= log.advance_log_start(offset)
                results[log] = log.log_start_offset
            except KafkaError as error:
                results[log] = error
        # Also when an earlier request moved them but could not write the checkpoint.
        if offsets and (is_moved or not self.checkpoints.is_written(LOG_START_FILE)):
            try:
                yield from self.checkpoints.writing_log_starts()
            except KafkaError as error:
                return dict.fromkeys(offsets, error)
        return results

    def accept_damage(self, partition: TopicPartition, now_ms: int) -> Log:
        """The operator's decision: set the damaged files aside and continue with the sound part."""
        damaged = self.by_partition[partition]
        assert damaged.damage is not None
        damaged.abandon()
        checkpointed = self.checkpoints.promised.pop(partition, None) or Checkpointed(
            recovery_point=damaged.recovery_point,
            log_start_offset=damaged.log_start_offset,
            high_watermark=damaged.high_watermark,
        )
        name = damaged.path.name
        log = self._open(name, partition, checkpointed, is_clean=False, now_ms=now_ms)
        # Two passes if the sound part ends before the log's start.
        for _ in range(2):
            if log.damage is None:
                break
            log.abandon()
            with self.directory.offline_on_error:
                quarantine(self.directory.filesystem, log.path, log.damage)
            keeps_nothing = log.damage.segment_base_offset < 0
            checkpointed = checkpointed.capped_at(
                Offset(0 if keeps_nothing else log.damage.first_offset)
            )
            log = self._open(name, partition, checkpointed, is_clean=False, now_ms=now_ms)
        log.topic_id = damaged.topic_id
        self.by_partition[partition] = log
        run_here(self.checkpoints.writing())
        return log

    # Durability

    def due_for_flush(self, now_ms: int) -> list[Log]:
        """Logs that are due by flush.ms."""
        due: list[Log] = []
        for log in self._all():
            if log.config.flush_ms == INT64_MAX or log.damage is not None:
                continue
            if log.flushed_offset >= log.log_end_offset:
                self._dirty_since_ms.pop(log, None)
            elif now_ms - self._dirty_since_ms.setdefault(log, now_ms) >= log.config.flush_ms:
                del self._dirty_since_ms[log]
                due.append(log)
        return due

    def stop(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flushes everything, then writes the marker that lets the next start trust it. A directory
        that fails on the way gets no marker, nor does one with a log that could not be opened: the
        next start must check that.
        """
        try:
            self._close_all()
            # Changed or not: the manifest is validated by their modification times.
            self.checkpoints.forget_written()
            run_here(self.checkpoints.writing())
            if not self.unreadable:
                self._write_manifest()
                self.directory.mark_clean_stop(broker_epoch)
        finally:
            self.directory.close()

    def abandon(self) -> None:
        """Closes everything and writes nothing."""
        for log in self._all():
            log.abandon()
        self.directory.close()

    def _write_manifest(self) -> None:
        names = [log.path.name for log in self._all() if log.damage is None]
        # The manifest is optional: a disk that has no room for it can still be stopped cleanly.
        with contextlib.suppress(DiskFullError), self.directory.offline_on_error:
            manifest.write_manifest(self.directory.filesystem, self.directory.path, names)

    def _close_all(self) -> None:
        """Closes all logs, even if one fails."""
        first_error: KafkaError | None = None
        for log in self._all():
            try:
                log.close()
            except KafkaError as error:
                first_error = first_error or error
                with contextlib.suppress(KafkaError):
                    log.flush()
                log.abandon()
        if first_error is not None:
            raise first_error

    def _all(self) -> list[Log]:
        return [*self.by_partition.values(), *self.futures.values()]
