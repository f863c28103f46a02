"""The files of a segment: a `.log` file of whole batches and three indexes, opened on first use.
Bytes handed out are copies, so later changes of the file do not affect them. Only callers that send
the bytes at once get a view of the file instead.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.frozen import frozen
from moldau.storage.disk.filesystem import File, FileSystem
from moldau.storage.log.damaged_bytes import OFFSETS_MAX, DamagedBytes
from moldau.storage.log.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    ROLLED_SUFFIX,
    SEGMENT_KINDS,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from moldau.storage.segment import open_segments
from moldau.storage.segment.checked_bytes import CheckedBytes
from moldau.storage.segment.indexes import OffsetIndex, TimeIndex
from moldau.storage.segment.transaction_index import TransactionIndex
from moldau.types import Buffer, Offset

if TYPE_CHECKING:
    from moldau.storage.segment.walk import BatchSpan


OnDamage = Callable[["SegmentFiles", Sequence[DamagedBytes]], None]
"""Called with damage that was not known before."""


@frozen
class SegmentSettings:
    index_interval_bytes: int
    index_bytes_max: int


class SegmentFiles:
    """The files of one segment. A `sealed` segment takes no more appends."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        base_offset: Offset,
        settings: SegmentSettings,
        *,
        created_ms: int,
        life: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.offset_limit = Offset(base_offset + OFFSETS_MAX)
        """A batch that claims this offset or a later one has a wrong offset."""
        self.settings = settings
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.sealed = False
        self.pins = 0
        self.filesystem = filesystem
        self._life = "" if life == ROLLED_SUFFIX else life
        self.is_rolled = life == ROLLED_SUFFIX
        """Its log file does not have its final name yet: see `ROLLED_SUFFIX`."""
        self._file: File | None = None
        self._closed_size: int | None = None
        self.times_shortened = 0
        self.is_retired = False
        """Removed from the log: its file may be gone, or its name may belong to another file."""
        self._checked: CheckedBytes | None = None
        self._last_located: BatchSpan | None = None
        self._following: dict[int, BatchSpan] = {}
        """The batches before which reads have ended, by offset."""
        self.damaged: tuple[DamagedBytes, ...] = ()
        """Known damage, in order of position."""
        self.on_damage: OnDamage | None = None
        base = Offset(base_offset)
        self.offset_index = OffsetIndex(
            filesystem, self.path(OFFSET_INDEX_SUFFIX), base, settings.index_bytes_max
        )
        self.time_index = TimeIndex(
            filesystem, self.path(TIME_INDEX_SUFFIX), base, settings.index_bytes_max
        )
        self.transaction_index = TransactionIndex(
            filesystem, self.path(TRANSACTION_INDEX_SUFFIX), base
        )

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}{self._life}, sealed={self.sealed})"

    def path(self, kind: str = LOG_SUFFIX) -> Path:
        life = ROLLED_SUFFIX if self.is_rolled and kind == LOG_SUFFIX else self._life
        return segment_path(self.directory, self.base_offset, kind, life)

    def unchanged_since_now(self) -> Callable[[], bool]:
        """Returns a check for later: is the file under the segment's name still the segment's own?
        A segment never takes back a name that it gave up, and no two segments of a log have the
        same name at a time.
        """
        path, times_shortened = self.path(), self.times_shortened

        def is_unchanged() -> bool:
            is_same_file = self.path() == path and not self.is_retired
            return is_same_file and self.times_shortened == times_shortened

        return is_unchanged

    @property
    def offsets(self) -> range:
        """The offsets that its batches may have."""
        return range(self.base_offset, self.offset_limit)

    def followed_by(self, base_offset: Offset | None) -> None:
        """The base offset of the next segment; None if this is the last one."""
        limit = Offset(self.base_offset + OFFSETS_MAX)
        self.offset_limit = limit if base_offset is None else min(base_offset, limit)

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.filesystem.open(self.path())
            self._closed_size = None
            open_segments.opened(self)
            if self._checked is None:
                self._checked = CheckedBytes(self._file.size())
        return self._file

    @property
    def size(self) -> int:
        """Known without opening the file: retention needs the size of every segment of
        every log.
        """
        if self._file is not None:
            return self._file.size()
        if self._closed_size is None:
            self._closed_size = self.filesystem.file_size(self.path())
        return self._closed_size

    def create(self) -> None:
        """Create the files. Remains of an earlier segment with this base offset are dropped."""
        for kind in SEGMENT_KINDS:
            self.filesystem.remove(self.path(kind))
        if self.is_rolled:
            self.filesystem.remove(segment_path(self.directory, self.base_offset, LOG_SUFFIX))
        self._file = self.filesystem.open(self.path(), create=True)
        open_segments.opened(self)
        self._checked = CheckedBytes(0)
        self._forget_located()
        self.damaged = ()
        self.offset_index.reset()
        self.time_index.reset()
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.reset()
        self.release_indexes()

    # Content

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write whole batches. After an OSError the tail is undefined: `cut` it."""
        self.file.append(buffers)

    def cut(self, size: int) -> None:
        """Undo a failed append."""
        self.file.truncate(size)
        self._forget_after(size)

    def _forget_located(self) -> None:
        self._last_located = None
        self._following.clear()

    def _forget_after(self, size: int) -> None:
        self._forget_located()
        self.damaged = tuple(each for each in self.damaged if each.position < size)
        if self._checked is not None:
            self._checked.cut(size)

    def _shorten(self, size: int) -> None:
        """Indexes first, log last: a crash in between leaves indexes that are merely sparse. The
        caller syncs the file.
        """
        self.times_shortened += 1
        self._forget_after(size)
        self.offset_index.write_out()
        self.time_index.write_out()
        self.file.truncate(size)

    # Names and handles

    def paths_to_sync(self) -> list[Path]:
        """After a sync of these paths the segment survives a power failure. Indexes of the active
        segment are omitted: after a crash they are rebuilt anyway.
        """
        paths = [self.path()]
        if self.sealed:
            self.offset_index.write_out()
            self.time_index.write_out()
            paths += [self.offset_index.path, self.time_index.path]
        if self.transaction_index.take_unsynced():
            paths.append(self.transaction_index.path)
        self.release_indexes()
        return paths

    def change_life(self, life: str) -> None:
        """Rename all files to the same name with another suffix. Handles stay usable.

        The log first: a crash in between must not leave a log whose transaction index was renamed
        ahead of it and is taken for another segment's, or for deleted.
        """
        # If no descriptor is free for this, nothing is renamed.
        self.offset_index.write_pending()
        self.time_index.write_pending()
        self.filesystem.rename(
            self.path(), segment_path(self.directory, self.base_offset, LOG_SUFFIX, life)
        )
        for index, kind in self._indexes():
            index.rename(segment_path(self.directory, self.base_offset, kind, life))
        self._life = life
        self.is_rolled = False

    def take_final_name(self) -> None:
        """Gives the log file its final name: everything before this segment is on the disk."""
        target = segment_path(self.directory, self.base_offset, LOG_SUFFIX)
        self.filesystem.rename(self.path(), target)
        self.is_rolled = False

    def moved_to(self, directory: Path) -> None:
        """The directory was renamed."""
        self.directory = directory
        for index, kind in self._indexes():
            index.moved_to(self.path(kind))

    def remove_files(self) -> None:
        self.abandon()
        for path in self.paths():
            self.filesystem.remove(path)

    def paths(self) -> list[Path]:
        """The paths of all files, in the order in which they are removed."""
        return [self.path(kind) for kind in reversed(SEGMENT_KINDS)]

    def release_indexes(self) -> None:
        """Indexes stay in memory: their files are opened only now and then to write some
        entries.
        """
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()

    def release(self) -> None:
        """Free the handles; the next use opens the files again. A file that a flush uses stays
        open: otherwise another file could get its descriptor during the sync.
        """
        if not self.pins:
            self.release_indexes()
            self._close_files()

    def abandon(self) -> None:
        """Free the handles, write nothing: everything is written, or the files will be deleted."""
        self.offset_index.abandon()
        self.time_index.abandon()
        self.transaction_index.close()
        self._close_files()

    def _close_files(self) -> None:
        open_segments.closed(self)
        if self._file is not None:
            self._closed_size = self._file.size()
            self._file.close()
            self._file = None

    def _indexes(self) -> tuple[tuple[OffsetIndex | TimeIndex | TransactionIndex, str], ...]:
        return (
            (self.offset_index, OFFSET_INDEX_SUFFIX),
            (self.time_index, TIME_INDEX_SUFFIX),
            (self.transaction_index, TRANSACTION_INDEX_SUFFIX),
        )
