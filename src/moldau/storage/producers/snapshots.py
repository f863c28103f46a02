"""Producer snapshots, `<offset:020d>.snapshot`: the producer table as of that offset, in
Kafka's format (version 1, CRC-32C). A snapshot is a cache of the log: a broken one is refused here,
removed by `reload`, and the state is replayed from an older one.
"""

import struct
from bisect import insort
from collections.abc import Iterable
from pathlib import Path

from moldau.protocol.errors import MoldauError
from moldau.protocol.records.checksum import crc32c
from moldau.storage.disk.failures import DiskFullError, refused_if_full
from moldau.storage.disk.filesystem import FileSystem, read_whole, sync_path
from moldau.storage.log.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from moldau.storage.producers.entry import BatchMetadata, ProducerEntry, decrement_sequence
from moldau.storage.producers.state import ProducerStateTable
from moldau.types import Buffer, Offset, ProducerEpoch

SNAPSHOT_VERSION = 1

# version, crc | entry count; the crc covers everything after it.
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_POSITION = _HEADER.size + _COUNT.size


class CorruptSnapshotError(MoldauError):
    """The file is not a whole, undamaged producer snapshot; the log has the same state."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in entries
    ]
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _HEADER.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(content: Buffer) -> list[ProducerEntry]:
    """Raises CorruptSnapshotError unless every byte is accounted for."""
    if len(content) < _ENTRIES_POSITION:
        raise CorruptSnapshotError(f"{len(content)} bytes are too few for a producer snapshot")
    version, crc = _HEADER.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"unknown producer snapshot version {version}")
    if crc32c(bytes(content[_HEADER.size :])) != crc:
        raise CorruptSnapshotError("the checksum of the producer snapshot does not match")
    (count,) = _COUNT.unpack_from(content, _HEADER.size)
    if count < 0 or len(content) != _ENTRIES_POSITION + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{len(content)} bytes do not hold {count} producers")
    return [_entry(*fields) for fields in _ENTRY.iter_unpack(content[_ENTRIES_POSITION:])]


def _entry(*fields: int) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator, first = fields
    entry = ProducerEntry(producer_id)
    if last_offset >= 0:
        first_sequence = decrement_sequence(last_sequence, delta)
        last_batch = BatchMetadata(
            first_sequence,
            last_sequence,
            Offset(last_offset - delta),
            Offset(last_offset),
            timestamp_ms,
        )
        entry.add_batch(ProducerEpoch(epoch), last_batch)
    entry.epoch = ProducerEpoch(epoch)
    entry.last_timestamp_ms = timestamp_ms
    entry.coordinator_epoch = coordinator
    entry.transaction_first_offset = Offset(max(first, -1))
    return entry


def snapshot_name(offset: Offset) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> Offset | None:
    """None if `name` is not the name of a snapshot."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    is_name = digits != name and len(digits) == 20 and digits.isdecimal()
    return Offset(int(digits)) if is_name else None


class ProducerSnapshots:
    """The snapshot files of one partition directory."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._offsets: list[Offset] = []
        # A log that begins here has no producers yet; Kafka writes no empty snapshot.
        self._floor_offset = 0
        self.rescan()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """In ascending order."""
        return tuple(self._offsets)

    @property
    def latest_offset(self) -> Offset | None:
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: Offset) -> Path:
        return self._directory / snapshot_name(offset)

    def rescan(self) -> None:
        names = self._filesystem.list_directory(self._directory)
        found = (snapshot_offset(name) for name in names)
        self._offsets = sorted(offset for offset in found if offset is not None)

    def move_to(self, directory: Path) -> None:
        """The partition's directory was renamed."""
        self._directory = directory

    def take(self, table: ProducerStateTable, *, sync: bool) -> Path | None:
        """Write the table as of its end offset; None if it is unchanged or there is no room."""
        offset = table.end_offset
        if offset <= max(self._floor_offset, self.latest_offset or 0):
            return None
        path = self.path(offset)
        # Not replaced atomically: until the segment that begins here is flushed, a crash discards
        # the snapshot or replays past it, and the checksum reveals a torn one.
        self._filesystem.remove(path)
        try:
            with refused_if_full(path):
                self._write(path, encode_snapshot(table))
        except DiskFullError:
            # The log has the same state; replaying it only takes longer.
            self._filesystem.remove(path)
            return None
        if sync:
            sync_path(self._filesystem, path)
        self._offsets.append(offset)
        return path

    def _write(self, path: Path, content: bytes) -> None:
        file = self._filesystem.open(path, create=True)
        try:
            file.append([content])
        finally:
            file.close()

    def reload(
        self,
        table: ProducerStateTable,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        now_ms: int,
    ) -> None:
        """Bring `table` back to the newest usable snapshot at or below `log_end_offset`; the caller
        replays from `table.end_offset`. A table that already ends there is kept.
        """
        for offset in self.offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                self.remove(Offset(offset))
        self._floor_offset = log_start_offset
        if table.end_offset == log_end_offset:
            table.on_log_start(log_start_offset)
            return
        while self._offsets:
            offset = self._offsets[-1]
            try:
                entries = decode_snapshot(read_whole(self._filesystem, self.path(Offset(offset))))
            except (CorruptSnapshotError, FileNotFoundError):
                self.remove(Offset(offset))
                continue
            table.load(entries, end_offset=Offset(offset), now_ms=now_ms)
            return
        table.clear(log_start_offset)

    def remove(self, offset: Offset) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
        self._filesystem.remove(self.path(offset))

    def remove_all(self) -> None:
        self._floor_offset = 0
        for offset in self.offsets:
            self.remove(Offset(offset))

    def mark_deleted(self, offset: Offset) -> Path | None:
        """First step of the deletion with its segment: renames it; the caller removes the
        result.
        """
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        path = self.path(offset)
        marked = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._filesystem.rename(path, marked)
        except FileNotFoundError:
            return None
        return marked

    def unmark_deleted(self, offset: Offset) -> None:
        """Undoes `mark_deleted`; does nothing if there is no such file."""
        path = self.path(offset)
        marked = path.with_name(path.name + DELETED_SUFFIX)
        if offset not in self._offsets and self._filesystem.exists(marked):
            self._filesystem.rename(marked, path)
            insort(self._offsets, offset)

    def remove_stray(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots at the start of a segment, and the newest other one if it is later
        than all segments: a clean stop wrote it.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and (not bases or strays[-1] >= max(bases)):
            strays.pop()
        for offset in strays:
            self.remove(Offset(offset))
