"""`__cluster_metadata-0` on the disk: its log, its snapshots, and the quorum's election state, in
Kafka's files. Nothing here decides anything; the quorum node owns it.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.broker.quorum.fetched_records import check_fetched, quorum_changes
from moldau.broker.quorum.log_start import (
    LoadedSnapshot,
    MetadataLogError,
    check_undamaged,
    continues,
    loaded,
    read_start,
)
from moldau.broker.quorum.snapshots import SnapshotId, SnapshotStore, StoredSnapshot
from moldau.config.broker_settings.quorum import QuorumSettings
from moldau.config.log import LogConfig
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.snapshot_file import control_values
from moldau.core.quorum.election import (
    Election,
    QuorumStateError,
    decode_election,
    encode_election,
)
from moldau.core.quorum.history import Changes, QuorumChange
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import RecordBatch, iterate_batches
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE, read_offsets, write_offsets
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.partition_metadata import PARTITION_METADATA_FILE, write_topic_id
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.disk.failures import CorruptCheckpointError
from moldau.storage.disk.filesystem import read_whole, write_atomically
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.read import Isolation
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.storage.log.retention import delete_old_segments
from moldau.storage.producers.state import AppendOrigin
from moldau.types import METADATA_PARTITION, METADATA_TOPIC_ID, NO_OFFSET, LeaderEpoch, Offset

_log = logging.getLogger(__name__)

QUORUM_STATE_FILE = "quorum-state"
_READ_BYTES = 1 << 20


class MetadataLog:
    """Create one with `MetadataLog.open`."""

    def __init__(
        self,
        directory: LogDirectory,
        log: Log,
        settings: QuorumSettings,
        stored_recovery_point: int,
    ) -> None:
        self.directory = directory
        self.log = log
        self.snapshots = SnapshotStore(log.filesystem, log.path)
        self.truncations = 0
        """Counts how often records were removed from the end, so that what was read before is no
        longer there.
        """
        self._start_epoch = 0
        self._settings = settings
        self._stored_recovery_point = stored_recovery_point

    @classmethod
    def open(
        cls,
        directory: LogDirectory,
        settings: QuorumSettings,
        flusher: GroupFlusher,
        now_ms: int,
    ) -> tuple["MetadataLog", LoadedSnapshot]:
        """Recovers from a crash. Raises MetadataLogError or MissingSnapshotError if committed data
        cannot be read.
        """
        path = directory.path_of(METADATA_PARTITION)
        with directory.offline_on_error:
            _make_directory(directory, path)
            # After a kill, the names of the last vote and of a snapshot may not be on the disk.
            directory.filesystem.sync_directory(path)
            options = LogOptions(
                config=_log_config(settings), flush_policy="group", flusher=flusher
            )
            recovery_point = _read_recovery_point(directory, path)
            location = LogLocation(
                directory=directory, path=path, topic_partition=METADATA_PARTITION
            )
            # The marker of a clean shutdown is about the other logs, and Kafka checks here, too.
            checkpointed = Checkpointed(recovery_point=recovery_point)
            log = open_log(location, options, checkpointed, is_clean=False, now_ms=now_ms)
            try:
                check_undamaged(log)
                opened = cls(directory, log, settings, recovery_point)
                start = opened._read_start(now_ms)
            except BaseException:
                log.abandon()
                raise
        return opened, start

    def _read_start(self, now_ms: int) -> LoadedSnapshot:
        start = read_start(self.log, self.snapshots)
        self._start_epoch = start.image.epoch
        if start.image.offset >= 0 and not continues(self.log, start.image):
            # Data in a snapshot is safe, even if the log has lost it, or never got there.
            _log.warning(
                "the metadata log from %d to %d starts over after its snapshot at %d",
                self.log.log_start_offset,
                self.log.log_end_offset,
                start.image.offset + 1,
            )
            snapshot_id = SnapshotId(start.image.epoch, start.image.offset + 1)
            run_here(self.starting_over(snapshot_id, now_ms))
        return start

    @property
    def path(self) -> Path:
        return self.log.path

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot if the log is empty."""
        return max(self.log.epochs.latest_epoch or 0, self._start_epoch)

    # The log

    def append(self, batch: bytes, epoch: int, now_ms: int) -> None:
        self.log.append_as_leader(
            batch, LeaderEpoch(epoch), now_ms, origin=AppendOrigin.RAFT_LEADER
        )

    def _batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The batches with offsets from `start` up to `end`. Snapshots end where a batch does."""
        offset = start
        while offset < end:
            found = self.log.read(Offset(offset), _READ_BYTES, isolation=Isolation.LOG_END)
            if not found.records:
                return
            for batch in iterate_batches(found.records):
                if offset <= batch.base_offset < end:
                    yield batch
            offset = found.next_offset

    def append_fetched(self, records: bytes, epoch: LeaderEpoch, now_ms: int) -> Changes:
        """Appends what the leader of the epoch has sent, if it continues this log. Returns what it
        says about the quorum. Raises KafkaError otherwise; then the log is unchanged. If it spans
        segments, the disk may refuse the rest: then only the first part counts.
        """
        was = self.log.log_end_offset
        fetched = check_fetched(records, self.end, epoch)
        try:
            self.log.append_as_follower(fetched.content, epoch, now_ms)
        except KafkaError as error:
            if self.log.log_end_offset == was:
                raise
            _log.warning("records from %d on were refused: %s", self.log.log_end_offset, error)
        return tuple(each for each in fetched.changes if each.offset < self.log.log_end_offset)

    def quorum_changes_from(self, offset: Offset) -> Changes:
        """The changes of the quorum in the log from there on, committed or not."""
        changes: list[QuorumChange] = []
        for batch in self._batches(offset, self.log.log_end_offset):
            if batch.is_control:
                changes += quorum_changes(control_values(batch), Offset(batch.base_offset))
        return tuple(changes)

    def truncating(self, end_offset: Offset, now_ms: int) -> Steps[None]:
        """Removes everything from `end_offset` on. A start after a crash at any moment finds no
        promise of what is gone.
        """
        if end_offset < self.log.log_end_offset:
            yield from self._lowering_recovery_point(self.log.end_before(end_offset))
        self.truncations += 1
        yield from self.log.truncating(end_offset, now_ms)

    def completing_snapshot(self, snapshot_id: SnapshotId) -> Steps[LoadedSnapshot]:
        """Makes a snapshot of another node, whose partial file is complete, this node's newest one.
        Call `starting_over` next. Raises MoldauError if it cannot be used; then nothing has
        changed.
        """
        found: list[LoadedSnapshot] = []
        stored: list[StoredSnapshot] = []
        with self.directory.offline_on_error:
            yield lambda: found.append(
                loaded(snapshot_id, self.snapshots.read_partial(snapshot_id))
            )
            yield lambda: stored.append(self.snapshots.complete(snapshot_id))
        self.snapshots.add(stored[0])
        return found[0]

    def starting_over(self, snapshot_id: SnapshotId, now_ms: int) -> Steps[None]:
        """Leaves nothing but the snapshot and an empty log after it. The next start does it if a
        crash prevents it.
        """
        offset = Offset(snapshot_id.offset)
        yield from self._lowering_recovery_point(0)
        self.truncations += 1
        yield from self.log.starting_over(offset, offset, now_ms)
        self._start_epoch = snapshot_id.epoch
        older = self.snapshots.forget_before(snapshot_id)
        yield from self.snapshots.removing(older, self.directory)

    # What the quorum machine reads

    @property
    def end(self) -> LogPosition:
        return LogPosition(LeaderEpoch(self.last_epoch), Offset(self.log.log_end_offset))

    @property
    def start_offset(self) -> Offset:
        return Offset(self.log.log_start_offset)

    @property
    def flushed_offset(self) -> Offset:
        return Offset(self.log.flushed_offset)

    @property
    def first_snapshot(self) -> LogPosition | None:
        return _position(self.snapshots.ids[0]) if self.snapshots.ids else None

    @property
    def last_snapshot(self) -> LogPosition | None:
        return _position(self.snapshots.ids[-1]) if self.snapshots.ids else None

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        snapshot_id = SnapshotId(snapshot.epoch, snapshot.offset)
        if snapshot_id not in self.snapshots.ids:
            return None
        return self.snapshots.size_in_bytes(snapshot_id)

    def snapshot_bytes(self, snapshot: LogPosition, position: int, max_bytes: int) -> bytes | None:
        """None if the snapshot was deleted in the meantime. May wait for the disk."""
        return self.snapshots.read_bytes(
            SnapshotId(snapshot.epoch, snapshot.offset), position, max_bytes
        )

    def end_of_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        found, end_offset = self.log.epochs.end_offset_for(epoch, Offset(self.log.log_end_offset))
        return self.end if end_offset == NO_OFFSET else LogPosition(found, end_offset)

    # Elections

    def read_election(self) -> Election | None:
        path = self.path / QUORUM_STATE_FILE
        with self.directory.offline_on_error:
            if not self.directory.filesystem.exists(path):
                return None
            content = read_whole(self.directory.filesystem, path)
        try:
            return decode_election(content)
        except QuorumStateError as error:
            raise MetadataLogError(f"{path}: {error}") from error

    def writing_election(
        self, election: Election, kraft_version: int, voters: VoterSet
    ) -> Steps[None]:
        content = encode_election(election, kraft_version=kraft_version, voter_ids=voters.by_id)
        filesystem, path = self.directory.filesystem, self.path / QUORUM_STATE_FILE
        with self.directory.offline_on_error:
            yield lambda: write_atomically(filesystem, path, content)

    # Retention

    def is_batch_start(self, offset: int, reads: CachedReads) -> bool:
        """False also if it would have to be read from the disk."""
        if offset == self.log.log_end_offset:
            return True
        reads.next_log(1)
        try:
            found = self.log.find(Offset(offset), 1, reads, isolation=Isolation.LOG_END)
            return RecordBatch(self.log.take(found, reads).records).base_offset == offset
        except NotCachedError:
            return False

    def clean(self, now_ms: int) -> None:
        """Deletes old snapshots while they exceed the limits of size or age, and the segments that
        only they needed. The newest snapshot always stays.
        """
        ids = self.snapshots.ids
        removed: list[SnapshotId] = []
        with self.log.damage_handler:
            while len(ids) > 1 and (self._is_too_much() or self._is_too_old(ids[0], now_ms)):
                following = ids[1]
                self.log.advance_log_start(Offset(following.offset))
                # A truncation to the start leaves no record that has it.
                self._start_epoch = following.epoch
                delete_old_segments(self.log, now_ms)
                removed += self.snapshots.forget_before(following)
        self.directory.do(self._removing(removed, now_ms))

    def _removing(self, snapshots: Sequence[SnapshotId], now_ms: int) -> Steps[None]:
        yield from self.snapshots.removing(snapshots, self.directory)
        if not self.log.is_abandoned:
            yield from self.log.removing_deleted(now_ms)

    def _is_too_much(self) -> bool:
        bytes_max = self._settings.metadata_max_retention_bytes
        kept = sum(map(self.snapshots.size_in_bytes, self.snapshots.ids))
        return 0 <= bytes_max < kept + self.log.segments.size_in_bytes

    def _is_too_old(self, snapshot_id: SnapshotId, now_ms: int) -> bool:
        age_max_ms = self._settings.metadata_max_retention_ms
        if age_max_ms < 0:
            return False
        return now_ms - self.snapshots.timestamp_ms(snapshot_id) > age_max_ms

    def _lowering_recovery_point(self, offset: int) -> Steps[None]:
        """On the disk before the records from there on are removed: recovery would take their
        absence for damage.
        """
        if offset < self._stored_recovery_point:
            yield from self._writing_recovery_point(offset)

    def storing_recovery_point(self) -> Steps[None]:
        """Data before the recovery point was flushed: if it cannot be read later, that is damage
        and not a torn end. Kafka has no such file for its metadata log.
        """
        flushed = self.log.recovery_point
        if flushed > self._stored_recovery_point:
            yield from self._writing_recovery_point(flushed)

    def _writing_recovery_point(self, offset: int) -> Steps[None]:
        path = self.path / RECOVERY_POINT_FILE
        offsets = {METADATA_PARTITION: Offset(offset)}
        with self.directory.offline_on_error:
            yield lambda: write_offsets(self.directory.filesystem, path, offsets)
        self._stored_recovery_point = offset

    def close(self) -> None:
        try:
            self.log.close()
            if self.directory.is_online:
                run_here(self.storing_recovery_point())
        finally:
            self.log.abandon()


class OpenedLog(NamedTuple):
    """The metadata log as a start finds it, with what the quorum needs to know of it."""

    log: MetadataLog
    image: MetadataImage
    """Of its snapshot."""
    changes: Changes
    """Of the quorum, in the snapshot and in all records after it."""
    election: Election | None


def open_metadata(
    directory: LogDirectory, settings: QuorumSettings, flusher: GroupFlusher, now_ms: int
) -> OpenedLog:
    """Takes long, and may run in any thread. Raises the errors of `MetadataLog.open`."""
    log, start = MetadataLog.open(directory, settings, flusher, now_ms)
    try:
        changes = start.changes + log.quorum_changes_from(Offset(start.image.offset + 1))
        return OpenedLog(log, start.image, changes, log.read_election())
    except BaseException:
        log.log.abandon()
        raise


def _make_directory(directory: LogDirectory, path: Path) -> None:
    filesystem = directory.filesystem
    if not filesystem.exists(path):
        filesystem.make_directory(path)
        filesystem.sync_directory(directory.path)
    if not filesystem.exists(path / PARTITION_METADATA_FILE):
        write_topic_id(filesystem, path / PARTITION_METADATA_FILE, METADATA_TOPIC_ID)


def _log_config(settings: QuorumSettings) -> LogConfig:
    """Retention is by snapshots, not by segments."""
    return LogConfig(
        segment_bytes=settings.metadata_log_segment_bytes,
        internal_segment_bytes=settings.internal_metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        max_message_bytes=settings.internal_metadata_max_batch_size_in_bytes,
        file_delete_delay_ms=settings.internal_metadata_delete_delay_millis,
        retention_ms=-1,
        retention_bytes=-1,
    )


def _read_recovery_point(directory: LogDirectory, path: Path) -> int:
    try:
        offsets = read_offsets(directory.filesystem, path / RECOVERY_POINT_FILE)
    except CorruptCheckpointError as error:
        _log.warning("%s; the metadata log is checked from its start", error)
        return 0
    return offsets.get(METADATA_PARTITION, 0)


def _position(snapshot_id: SnapshotId) -> LogPosition:
    return LogPosition(LeaderEpoch(snapshot_id.epoch), Offset(snapshot_id.offset))
