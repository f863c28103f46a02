"""A segment that maintains its indexes while it grows and rebuilds lost ones. Indexes are caches: a
missing, broken or misleading index is rebuilt from the log on the spot.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from moldau.protocol.records.scanned_batch import LAST_OFFSET, MAX_TIMESTAMP, POSITION, ScannedBatch
from moldau.storage.disk.cached_reads import Adopt, CachedReads
from moldau.storage.disk.failures import (
    CorruptIndexError,
    DamagedFileError,
    DiskFullError,
    InvalidIndexEntryError,
    refused_if_full,
)
from moldau.storage.disk.filesystem import File, FileSystem
from moldau.storage.log.damaged_bytes import DamagedBytes, TolerantScan
from moldau.storage.segment.files import SegmentSettings
from moldau.storage.segment.reads import ReadableSegment
from moldau.storage.segment.walk import BatchSpan, CorruptSegmentError, walk_batches
from moldau.types import INT32_MAX, NO_TIMESTAMP, Offset, TimestampMs

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class IndexedSegment(ReadableSegment):
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
        super().__init__(
            filesystem, directory, base_offset, settings, created_ms=created_ms, life=life
        )
        # Kafka restarts the count when it opens a segment; so do we, to write the same entries.
        self._indexed_position = -1
        self._is_full: bool | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp_ms: int | None = None

    def create(self) -> None:
        super().create()
        self._is_full = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._indexed_position = 0

    def walk(self, position: int = 0, reads: CachedReads | None = None) -> Iterator[BatchSpan]:
        """Iterates over the batches from a batch's position. Raises CorruptSegmentError where none
        begins.
        """
        return walk_batches(self, position, self.size, reads)

    def index_batch(self, position: int, last_offset: Offset, max_timestamp_ms: int) -> None:
        """Add index entries for a batch that was appended at `position`."""
        largest = self._max_timestamp or self.max_timestamp
        if max_timestamp_ms > largest[0]:
            self._max_timestamp = largest = (max_timestamp_ms, last_offset)
        if self._indexed_position < 0:
            self._indexed_position = position
        elif (
            position - self._indexed_position > self.settings.index_interval_bytes
            and not self.is_full_of_entries
        ):
            self._indexed_position = position
            self._is_full = None
            try:
                self.offset_index.append(Offset(last_offset), position)
                self.time_index.append(TimestampMs(largest[0]), Offset(largest[1]))
            except (CorruptIndexError, InvalidIndexEntryError):
                # Its earlier entries cannot come from this log.
                self.rebuild_indexes()
            self.release_indexes()

    @property
    def is_full_of_entries(self) -> bool:
        if self._is_full is None:
            self._is_full = self.with_indexes(
                lambda: self.offset_index.is_full or self.time_index.is_full
            )
        return self._is_full

    def can_hold(self, offset: Offset) -> bool:
        return 0 <= offset - self.base_offset <= INT32_MAX

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base
        offset) without timestamps.
        """
        return self._max_timestamp or self._learn_max_timestamp()

    def _learn_max_timestamp(self, reads: CachedReads | None = None) -> tuple[int, int]:
        # An index that lost its end would hide the newest records from searches by time.
        self.complete_indexes(reads)
        if self._max_timestamp is None:
            timestamp_ms, offset = self.time_index.last_entry
            self._max_timestamp = (timestamp_ms, offset)
        return self._max_timestamp

    def _read_max_timestamp(self) -> tuple[int, int]:
        timestamp_ms, offset = self.time_index.last_entry
        largest = (int(timestamp_ms), int(offset))
        for span in self.walk(self.offset_index.lookup(offset)[1]):
            if span.max_timestamp_ms > largest[0]:
                largest = (span.max_timestamp_ms, span.last_offset)
        return largest

    def seal(self) -> None:
        """No more appends: adds the largest timestamp, which retention uses, to the time index."""
        self._complete_time_index()
        self._write_indexes()
        self.release_indexes()
        self.sealed = True

    def _complete_time_index(self) -> None:
        timestamp_ms, offset = self.max_timestamp
        if self.time_index.entry_count < self.time_index.max_entries:
            self.time_index.append(TimestampMs(timestamp_ms), Offset(offset), sealing=True)

    def _write_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()

    # Rebuilding

    def with_indexes(self, use: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT:
        """Run `use`; if it finds an index broken, rebuild both indexes and run it again."""
        return self.with_cached(None, use, *args, **kwargs)

    def with_cached(
        self,
        reads: CachedReads | None,
        use: Callable[P, ResultT],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ResultT:
        """As `with_indexes`, but problems are examined and repaired in a thread."""
        try:
            return use(*args, **kwargs)
        except (CorruptIndexError, CorruptSegmentError, InvalidIndexEntryError):
            if reads is not None:
                reads.examine(self)
            self.rebuild_indexes()
            return use(*args, **kwargs)

    def load_max_timestamp(self, reads: CachedReads | None) -> None:
        """Makes `max_timestamp` available in memory. With `reads`, this does not wait for
        the disk.
        """
        if reads is not None and self._max_timestamp is None:
            reads.need(self, self.offset_index)
            reads.need(self, self.time_index)
            self._learn_max_timestamp(reads)

    def complete_indexes(self, reads: CachedReads | None = None) -> None:
        """Rebuild the indexes if their ends are missing, as after a crash before they were synced.
        Reads only the headers after the last entries.
        """

        def is_complete() -> bool:
            timestamp_ms, offset = self.time_index.last_entry
            indexed_position = self.offset_index.lookup(self.offset_index.last_offset)[1]
            first = self.offset_index.lookup(offset)[1]
            largest, last_position = int(NO_TIMESTAMP), 0
            for span in self.walk(min(first, indexed_position), reads):
                largest, last_position = max(largest, span.max_timestamp_ms), span.position
            interval = self.settings.index_interval_bytes
            return largest == timestamp_ms and last_position - indexed_position <= interval

        try:
            if is_complete():
                return
        except DamagedFileError:
            pass
        if reads is not None:
            reads.examine(self)
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Rebuilds the indexes from the headers of the sound batches."""
        file = self.file
        # A reader may find them broken on a disk that accepts no writes.
        with refused_if_full(self.path()):
            self.begin_index_rebuild()
        scan = TolerantScan(file, 0, self.size, offsets=self.offsets)
        for headers in scan:
            self.index_scanned(headers)
        self.note_damaged(tuple(scan.damaged))
        with refused_if_full(self.path()):
            self.finish_index_rebuild()
        # Not synced: the loop may be the caller. Its next reader rebuilds an index that a power
        # failure tears.
        self.release_indexes()

    def examination(self) -> Callable[[], Adopt]:
        """Also rebuilds the indexes."""
        path, size, is_unchanged = self.path(), self.size, self.unchanged_since_now()
        copy = self.copy_for_thread()

        def examine() -> Adopt:
            file = self.filesystem.open(path)
            try:
                copy.rebuild_from(file, size)
            finally:
                file.close()
            return adopt

        def adopt() -> None:
            if is_unchanged():
                self.offset_index, self.time_index = copy.offset_index, copy.time_index
                self._max_timestamp, self._is_full = copy.max_timestamp, None
                self._indexed_position = copy._indexed_position
                damaged = copy.damaged + self._index_rest(size)
                # On a full disk entries stay in memory. Not synced, as in `rebuild_indexes`.
                with contextlib.suppress(DiskFullError), refused_if_full(self.path()):
                    self._write_indexes()
                self.release_indexes()
                self.note_damaged(damaged)

        return examine

    def _index_rest(self, start: int) -> tuple[DamagedBytes, ...]:
        """Indexes what was appended while a thread rebuilt the indexes. Returns its damage."""
        if self.size <= start:
            return ()
        scan = TolerantScan(self.file, start, self.size, offsets=self.offsets)
        for headers in scan:
            self.index_scanned(headers)
        self._complete_time_index()
        return tuple(scan.damaged)

    def copy_for_thread(self) -> "IndexedSegment":
        """The same segment for a thread, with indexes of its own."""
        copy = IndexedSegment(
            self.filesystem,
            self.directory,
            self.base_offset,
            self.settings,
            created_ms=self.created_ms,
            life=self._life,
        )
        copy.offset_limit = self.offset_limit
        return copy

    def rebuild_from(self, file: File, size: int) -> None:
        """As `rebuild_indexes`, from an open file and in memory only: the names of the index files
        may belong to another segment by now.
        """
        self.offset_index.begin_in_memory()
        self.time_index.begin_in_memory()
        self._begin_counting()
        scan = TolerantScan(file, 0, size, offsets=self.offsets)
        for headers in scan:
            self.index_scanned(headers)
        self.damaged = tuple(scan.damaged)
        self._complete_time_index()

    def begin_index_rebuild(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._begin_counting()

    def _begin_counting(self) -> None:
        self._is_full = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._indexed_position = 0

    def index_scanned(self, headers: Iterable[ScannedBatch]) -> None:
        """As `index_batch` for each header, in a loop of its own because a recovery scan does
        little else. Raises CorruptSegmentError for a batch that no index can hold.
        """
        try:
            self._index_scanned(headers)
        except InvalidIndexEntryError as error:
            raise CorruptSegmentError(self.path(), str(error)) from error

    def _index_scanned(self, headers: Iterable[ScannedBatch]) -> None:
        interval = self.settings.index_interval_bytes
        largest_ms, largest_offset = self.max_timestamp
        indexed = self._indexed_position
        # The setting may have been lowered: a full index stays sparse after its last entry.
        room = min(self.offset_index.max_entries, self.time_index.max_entries - 1)
        room -= self.offset_index.entry_count
        for header in headers:
            if header[MAX_TIMESTAMP] > largest_ms:
                largest_ms, largest_offset = header[MAX_TIMESTAMP], header[LAST_OFFSET]
            if header[POSITION] - indexed > interval and room > 0:
                room -= 1
                indexed = header[POSITION]
                self.offset_index.append(Offset(header[LAST_OFFSET]), indexed)
                self.time_index.append(TimestampMs(largest_ms), Offset(largest_offset))
        self._indexed_position = indexed
        self._max_timestamp = (largest_ms, largest_offset)

    def finish_index_rebuild(self) -> None:
        self._complete_time_index()
        self._write_indexes()
