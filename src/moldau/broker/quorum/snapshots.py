"""The snapshots of the metadata log: `<end offset>-<epoch>.checkpoint` beside its segments. A
snapshot is complete or absent: it is written under another name, synced, and renamed. A damaged
one is set aside and never used.
"""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.core.metadata.snapshot_file import (
    DamagedSnapshotError,
    Snapshot,
    decode_snapshot,
    snapshot_timestamp_ms,
)
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import refused_if_full
from moldau.storage.disk.filesystem import FileSystem, read_whole
from moldau.storage.log.damage import keep_aside
from moldau.storage.log.names import OFFSET_DIGITS, RAFT_SNAPSHOT_DELETED_SUFFIX

_log = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
PARTIAL_SUFFIX = ".checkpoint.part"

_EPOCH_DIGITS = 10
# The first batch has the header and the voters.
_HEAD_BYTES_MAX = 1 << 20


class SnapshotId(NamedTuple):
    """Sorts in the order of creation."""

    epoch: int
    offset: int
    """The first offset that is not in it."""

    @property
    def file_name(self) -> str:
        return f"{self.offset:0{OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    stem = name.removesuffix(SUFFIX)
    offset, dash, epoch = stem.partition("-")
    if not (name.endswith(SUFFIX) and dash and offset.isdecimal() and epoch.isdecimal()):
        return None
    if len(offset) != OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    return SnapshotId(int(epoch), int(offset))


class MissingSnapshotError(MoldauError):
    """Records are gone from the log and no snapshot contains them."""


class StoredSnapshot(NamedTuple):
    snapshot_id: SnapshotId
    size_bytes: int
    timestamp_ms: int
    """Of its last record; 0 if it is damaged, which lets it be deleted."""


class SnapshotStore:
    """`path` is the metadata log's directory. Only methods that say so may be called in other
    threads than the owner's; the others do not wait for the disk, but for those of a start.
    """

    def __init__(self, filesystem: FileSystem, path: Path) -> None:
        self._filesystem = filesystem
        self.path = path
        self.ids: list[SnapshotId] = []
        """Sorted from the oldest to the newest."""
        self._stored: dict[SnapshotId, StoredSnapshot] = {}

    def load(self, log_start_offset: int) -> None:
        """Lists the existing snapshots. Unfinished ones, and those older than the log, are
        removed.
        """
        for name in self._filesystem.list_directory(self.path):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None and snapshot_id.offset >= log_start_offset:
                self.ids.append(snapshot_id)
            elif snapshot_id is not None or name.endswith(
                (PARTIAL_SUFFIX, RAFT_SNAPSHOT_DELETED_SUFFIX)
            ):
                self._filesystem.remove(self.path / name)
        self.ids.sort()
        self._stored = {each: self._examined(each) for each in self.ids}

    def read_newest(
        self, log_start_offset: int, log_end_offset: int
    ) -> tuple[SnapshotId, Snapshot] | None:
        """The newest undamaged snapshot; None if there is none and the log is complete."""
        reason = "there is none"
        while self.ids:
            newest = self.ids[-1]
            try:
                return newest, self.read(newest)
            except DamagedSnapshotError as error:
                reason = f"{newest.file_name} is damaged: {error}"
            if newest.offset > log_end_offset or (log_start_offset > 0 and len(self.ids) == 1):
                break
            _log.error("%s: %s; it is moved aside, and the log is read instead", self.path, reason)
            keep_aside(self._filesystem, self.path / newest.file_name)
            self._filesystem.sync_directory(self.path)
            self._forget(newest)
        if log_start_offset == 0 and not self.ids:
            return None
        raise MissingSnapshotError(
            f"{self.path}: the metadata log has offsets {log_start_offset} to {log_end_offset} and "
            f"needs a snapshot of the others; {reason}"
        )

    def read(self, snapshot_id: SnapshotId) -> Snapshot:
        path = self.path / snapshot_id.file_name
        try:
            return decode_snapshot(read_whole(self._filesystem, path))
        except KafkaError as error:
            # Written by a later release: it is not damaged, and an older one would be wrong.
            raise MissingSnapshotError(f"{path}: {error}") from error

    def read_bytes(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes | None:
        """None if the snapshot was deleted in the meantime. May wait for the disk."""
        try:
            file = self._filesystem.open(self.path / snapshot_id.file_name)
        except FileNotFoundError:
            return None
        try:
            return file.read(position, max_bytes)
        finally:
            file.close()

    def partial_path(self, snapshot_id: SnapshotId) -> Path:
        return self.path / (snapshot_id.file_name.removesuffix(SUFFIX) + PARTIAL_SUFFIX)

    def read_partial(self, snapshot_id: SnapshotId) -> Snapshot:
        """May run in any thread. Raises DamagedSnapshotError, and KafkaError for a later format."""
        return decode_snapshot(read_whole(self._filesystem, self.partial_path(snapshot_id)))

    def complete(self, snapshot_id: SnapshotId) -> StoredSnapshot:
        """May run in any thread: gives the partial file, which is on the disk, its final name. Pass
        the result to `add`.
        """
        target = self.path / snapshot_id.file_name
        self._filesystem.rename(self.partial_path(snapshot_id), target)
        self._filesystem.sync_directory(self.path)
        return self._examined(snapshot_id)

    def write(self, snapshot_id: SnapshotId, batches: Iterable[bytes]) -> StoredSnapshot:
        """May run in any thread; pass the result to `add`. DiskFullError leaves no file."""
        target, partial = self.path / snapshot_id.file_name, self.partial_path(snapshot_id)
        self._filesystem.remove(partial)
        try:
            with refused_if_full(target):
                file = self._filesystem.open(partial, create=True)
                try:
                    for batch in batches:
                        file.append([batch])
                    file.sync()
                finally:
                    file.close()
        except KafkaError:
            self._filesystem.remove(partial)
            raise
        return self.complete(snapshot_id)

    def add(self, stored: StoredSnapshot) -> None:
        """Also if it is there already: then it was replaced."""
        if stored.snapshot_id not in self._stored:
            self.ids.append(stored.snapshot_id)
            self.ids.sort()
        self._stored[stored.snapshot_id] = stored

    def forget_before(self, snapshot_id: SnapshotId) -> list[SnapshotId]:
        """The older ones are not used any more. Returns them, for `removing`."""
        older = [each for each in self.ids if each < snapshot_id]
        for each in older:
            self._forget(each)
        return older

    def _forget(self, snapshot_id: SnapshotId) -> None:
        self.ids.remove(snapshot_id)
        del self._stored[snapshot_id]

    def removing(self, snapshots: Iterable[SnapshotId], directory: LogDirectory) -> Steps[None]:
        """Removes the files of snapshots that are not among `ids`."""
        with directory.offline_on_error:
            for each in snapshots:
                yield partial(self._filesystem.remove, self.path / each.file_name)

    def size_in_bytes(self, snapshot_id: SnapshotId) -> int:
        return self._stored[snapshot_id].size_bytes

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        return self._stored[snapshot_id].timestamp_ms

    def _examined(self, snapshot_id: SnapshotId) -> StoredSnapshot:
        file = self._filesystem.open(self.path / snapshot_id.file_name)
        try:
            size_bytes, start = file.size(), file.read(0, _HEAD_BYTES_MAX)
        finally:
            file.close()
        try:
            timestamp_ms = snapshot_timestamp_ms(start)
        except DamagedSnapshotError:
            timestamp_ms = 0
        return StoredSnapshot(snapshot_id, size_bytes, timestamp_ms)
