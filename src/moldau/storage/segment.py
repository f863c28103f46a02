"""One segment: a `.log` file of whole batches and its indexes. Files are opened when first used.

Indexes are caches: one that is missing, broken or points nowhere is rebuilt from the log on the
spot. Bytes that were handed out as a view are never cut off under it: the kept part moves to a new
file instead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from moldau.storage.checked_bytes import CheckedBytes
from moldau.storage.failures import CorruptIndexError, DamagedFileError, InvalidIndexEntryError
from moldau.storage.filesystem import File, FileSystem
from moldau.storage.indexes import OffsetIndex, TimeIndex
from moldau.storage.log_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_KINDS,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from moldau.storage.segment_scan import SegmentScan
from moldau.storage.segment_walk import INT32_MAX, BatchSpan, CorruptSegmentError, walk_batches
from moldau.storage.transaction_index import TransactionIndex
from moldau.types import NO_TIMESTAMP, Buffer, Offset, TimestampMs

# Enough for the batches between two index entries; a batch that is longer costs another read.
_WALK_BYTES = 8192
_COPY_BYTES = 4 << 20

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    index_interval_bytes: int
    index_bytes_max: int


class Segment:
    """`sealed` segments take no more appends; only they are read through a map."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        base_offset: int,
        settings: SegmentSettings,
        *,
        created_ms: int,
        life: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.settings = settings
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.sealed = False
        self._filesystem = filesystem
        self._life = life
        self._file: File | None = None
        # A flush may be syncing these in a thread: they are closed when the segment is let go.
        self._replaced_files: list[File] = []
        self._viewed_bytes = 0
        self._checked: CheckedBytes | None = None
        # Kafka starts counting anew when it opens a segment; so do we, for the same entries.
        self._indexed_position = -1
        self._is_full: bool | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp_ms: int | None = None
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
        return segment_path(self.directory, self.base_offset, kind, self._life)

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path())
            if self._checked is None:
                self._checked = CheckedBytes(self._file.size())
        return self._file

    def create(self) -> None:
        """Make the files anew. Remains of a segment with this base offset are dropped."""
        for kind in SEGMENT_KINDS:
            self._filesystem.remove(self.path(kind))
        self._file = self._filesystem.open(self.path(), create=True)
        self._checked = CheckedBytes(0)
        self.offset_index.reset()
        self.time_index.reset()
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.reset()
        self._is_full = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._indexed_position = 0

    @property
    def size(self) -> int:
        return self.file.size()

    # Appending

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write whole batches. After an OSError the tail is undefined: `cut` it."""
        self.file.append(buffers)

    def cut(self, size: int) -> None:
        """Undo a failed append."""
        self.file.truncate(size)
        self._forget_behind(size)

    def _forget_behind(self, size: int) -> None:
        if self._checked is not None:
            self._checked.cut(size)

    def index_batch(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Note a batch that was appended at `position`."""
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
                # What it held before cannot have been an index of this log.
                self.rebuild_indexes()

    @property
    def is_full_of_entries(self) -> bool:
        if self._is_full is None:
            self._is_full = self.offset_index.is_full or self.time_index.is_full
        return self._is_full

    def can_hold(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= INT32_MAX

    def seal(self) -> None:
        """No more appends: the time index gets the largest timestamp, which retention goes by."""
        self._complete_time_index()
        self.sealed = True

    def _complete_time_index(self) -> None:
        timestamp_ms, offset = self.max_timestamp
        if self.time_index.entry_count < self.time_index.max_entries:
            self.time_index.append(TimestampMs(timestamp_ms), Offset(offset), sealing=True)
        self.offset_index.write_out()
        self.time_index.write_out()

    def files_to_sync(self) -> list[File]:
        """After `sync` of these the segment survives a power cut. The indexes of a segment that is
        still written to are left out: after a crash they are rebuilt anyway.
        """
        files = [self.file]
        if self.sealed:
            files += [self.offset_index.write_out(), self.time_index.write_out()]
        transactions = self.transaction_index.write_out()
        return files if transactions is None else [*files, transactions]

    # Looking

    def slice(self, start: int, end: int) -> memoryview:
        """Bytes of whole batches; without a copy if the segment is sealed."""
        if self.sealed:
            self._viewed_bytes = max(self._viewed_bytes, end)
            content = self.file.view(start, end - start)
        else:
            content = memoryview(self.file.read(start, end - start))
        checked = self._checked
        if checked is not None and start < checked.found_bytes:
            checked.check(self.path(), content, start)
        return content

    def trust(self) -> None:
        """A recovery scan has checked every byte."""
        self._checked = CheckedBytes(0)

    def walk(self, position: int = 0) -> Iterator[BatchSpan]:
        """Batch by batch from a batch's position. Raises CorruptSegmentError where none begins."""
        return walk_batches(self, position, self.size)

    def window(self, position: int, size: int) -> Buffer:
        if self.sealed:
            return self.file.view(position, size - position)
        return self.file.read(position, _WALK_BYTES)

    def locate(self, offset: int) -> BatchSpan | None:
        """The first batch that ends at or after `offset`; None if all end before it."""
        return self.with_indexes(lambda: self._locate(offset))

    def _locate(self, offset: int) -> BatchSpan | None:
        indexed_offset, position = self.offset_index.lookup(Offset(offset))
        first = position > 0
        if first and position >= self.size:
            raise CorruptIndexError(self.offset_index.path, f"({indexed_offset}, {position})")
        for span in self.walk(position):
            if first and not span.base_offset <= indexed_offset <= span.last_offset:
                raise CorruptIndexError(self.offset_index.path, f"({indexed_offset}, {position})")
            first = False
            if span.last_offset >= offset:
                return span
        return None

    def boundary(self, limit: int, floor: int) -> tuple[int, int]:
        """The last end of a batch at or before position `limit`, and the offset after that batch.
        The batch at position `floor` ends before `limit`.
        """
        return self.with_indexes(lambda: self._boundary(limit, floor))

    def _boundary(self, limit: int, floor: int) -> tuple[int, int]:
        found, next_offset = max(floor, self._indexed_position_before(limit)), -1
        for span in self.walk(found):
            if span.position + span.size > limit:
                break
            found, next_offset = span.position + span.size, span.last_offset + 1
        if next_offset < 0:
            raise CorruptIndexError(
                self.offset_index.path, f"position {found} is not before {limit}"
            )
        return found, next_offset

    def _indexed_position_before(self, limit: int) -> int:
        """The position of the last indexed batch but one that starts at or before `limit`: a batch
        behind it certainly ends before `limit` too, so the walk has a next offset to tell.
        """
        index = self.offset_index
        low, high = 0, index.entry_count
        while low < high:
            middle = (low + high) // 2
            if index.entry(middle)[1] <= limit:
                low = middle + 1
            else:
                high = middle
        return index.entry(low - 2)[1] if low >= 2 else 0

    def next_offset(self) -> int:
        """The offset after the last batch. Raises CorruptSegmentError if the file ends in none."""

        def read() -> int:
            last = self.offset_index.last_offset
            position = self.offset_index.lookup(last)[1]
            end = self.base_offset
            for span in self.walk(position):
                end = span.last_offset + 1
            if end <= last and position > 0:
                raise CorruptIndexError(self.offset_index.path, f"offset {last} is not in the log")
            return end

        return self.with_indexes(read)

    def end_before(self, offset: int) -> int:
        """The offset after the last batch that lies wholly before `offset`."""

        def find() -> int:
            end = self.base_offset
            for span in self.walk(self.offset_index.lookup(Offset(offset - 1))[1]):
                if span.last_offset >= offset:
                    break
                end = span.last_offset + 1
            return end

        return self.with_indexes(find)

    # Time

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base
        offset) without timestamps.
        """
        if self._max_timestamp is None:
            # An index that lost its end would hide the newest records from searches by time.
            self.complete_indexes()
        if self._max_timestamp is None:
            timestamp_ms, offset = self.time_index.last_entry
            self._max_timestamp = (timestamp_ms, offset)
        return self._max_timestamp

    def largest_timestamp_ms(self) -> int:
        """What retention goes by: the records' time, or the file's if they have none."""
        timestamp_ms = self.max_timestamp[0]
        return timestamp_ms if timestamp_ms >= 0 else self._filesystem.modified_ms(self.path())

    def first_timestamp_ms(self) -> int:
        """Of the first batch; -1 if there is none."""
        if self._first_timestamp_ms is None:
            first = next(self.walk(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = first.max_timestamp_ms
        return self._first_timestamp_ms

    def waited_for_roll_ms(self, now_ms: int, newest_timestamp_ms: int) -> int:
        """Records' time if they have one: a log that is filled with old records rolls like one that
        is filled now.
        """
        first_ms = self.first_timestamp_ms()
        return newest_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms

    def batches_from_time(self, timestamp_ms: int, start_offset: int) -> Iterator[BatchSpan]:
        """From a batch that surely lies before the first record at or after `timestamp_ms`."""

        def position() -> int:
            indexed_ms, offset = self.time_index.lookup(TimestampMs(timestamp_ms))
            if indexed_ms >= 0:
                span = self._locate(offset)
                if span is None or span.max_timestamp_ms != indexed_ms:
                    raise CorruptIndexError(self.time_index.path, f"({indexed_ms}, {offset})")
            return self.offset_index.lookup(Offset(max(offset, start_offset)))[1]

        return self.walk(self.with_indexes(position))

    # Shortening and repair

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that contains `offset` and all after it; the number of bytes dropped."""
        span = self.locate(offset)
        size = self.size
        self.offset_index.truncate_to(Offset(offset))
        self.time_index.truncate_to(Offset(offset))
        self.transaction_index.truncate_to(Offset(offset))
        if span is not None:
            self._shorten(span.position)
        kept = self.size
        if kept == 0:
            self._first_timestamp_ms = None
        self._is_full = None
        self._indexed_position = kept
        self.sealed = False
        self._max_timestamp = self._read_max_timestamp()
        return size - kept

    def _shorten(self, size: int) -> None:
        """Indexes first, log last: a crash in between leaves indexes that are merely sparse."""
        self._forget_behind(size)
        self.offset_index.write_out()
        self.time_index.write_out()
        if size >= self._viewed_bytes:
            self.file.truncate(size)
            # Or a power cut brings the dropped batches back.
            self.file.sync()
            return
        spare = self.path().with_name(self.path().name + CLEANED_SUFFIX)
        self._filesystem.remove(spare)
        copy = self._filesystem.open(spare, create=True)
        try:
            for start in range(0, size, _COPY_BYTES):
                copy.append([self.file.read(start, min(_COPY_BYTES, size - start))])
            copy.sync()
        finally:
            copy.close()
        self._filesystem.rename(spare, self.path())
        self._filesystem.sync_directory(self.directory)
        self._replaced_files.append(self.file)
        self._file = None
        self._viewed_bytes = 0

    def _read_max_timestamp(self) -> tuple[int, int]:
        timestamp_ms, offset = self.time_index.last_entry
        largest = (int(timestamp_ms), int(offset))
        for span in self.walk(self.offset_index.lookup(offset)[1]):
            if span.max_timestamp_ms > largest[0]:
                largest = (span.max_timestamp_ms, span.last_offset)
        return largest

    def with_indexes(self, use: Callable[[], ResultT]) -> ResultT:
        """Run `use`; if it finds an index broken, rebuild both and run it once more."""
        try:
            return use()
        except (CorruptIndexError, CorruptSegmentError, InvalidIndexEntryError):
            self.rebuild_indexes()
            return use()

    def complete_indexes(self) -> None:
        """Rebuild the indexes if their ends are missing, as after a crash before they were synced.
        Looks at the headers behind the last entries only.
        """

        def is_complete() -> bool:
            timestamp_ms, offset = self.time_index.last_entry
            indexed_position = self.offset_index.lookup(self.offset_index.last_offset)[1]
            first = self.offset_index.lookup(offset)[1]
            largest, last_position = int(NO_TIMESTAMP), 0
            for span in self.walk(min(first, indexed_position)):
                largest, last_position = max(largest, span.max_timestamp_ms), span.position
            interval = self.settings.index_interval_bytes
            return largest == timestamp_ms and last_position - indexed_position <= interval

        try:
            if is_complete():
                return
        except DamagedFileError:
            pass
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """From the headers of the batches that are whole."""
        self.begin_index_rebuild()
        for headers in SegmentScan(self.file, 0, self.size, verify_crc=False):
            self.index_scanned(headers)
        self.finish_index_rebuild()
        # Rare, and possibly of a segment that no later flush would look at.
        self.offset_index.flush()
        self.time_index.flush()

    def begin_index_rebuild(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._is_full = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._indexed_position = 0

    def index_scanned(self, headers: Iterable[tuple[int, ...]]) -> None:
        """As `index_batch` for each; a loop of its own, as a recovery scan does little else."""
        interval = self.settings.index_interval_bytes
        largest_ms, largest_offset = self.max_timestamp
        indexed = self._indexed_position
        # The setting may have been lowered since: a full index stays sparse behind its last entry.
        room = min(self.offset_index.max_entries, self.time_index.max_entries - 1)
        room -= self.offset_index.entry_count
        for header in headers:
            if header[5] > largest_ms:
                largest_ms, largest_offset = header[5], header[3]
            if header[0] - indexed > interval and room > 0:
                room -= 1
                indexed = header[0]
                self.offset_index.append(Offset(header[3]), indexed)
                self.time_index.append(TimestampMs(largest_ms), Offset(largest_offset))
        self._indexed_position = indexed
        self._max_timestamp = (largest_ms, largest_offset)

    def finish_index_rebuild(self) -> None:
        self._complete_time_index()

    # The files as such

    def change_life(self, life: str) -> None:
        """Rename all files to the same name with another suffix. Handles stay usable."""
        for index, kind in self._indexes():
            index.rename(segment_path(self.directory, self.base_offset, kind, life))
        self._filesystem.rename(
            self.path(), segment_path(self.directory, self.base_offset, LOG_SUFFIX, life)
        )
        self._life = life

    def moved_to(self, directory: Path) -> None:
        """The directory was renamed."""
        self.directory = directory
        for index, kind in self._indexes():
            index.moved_to(self.path(kind))

    def remove_files(self) -> None:
        self.abandon()
        for kind in reversed(SEGMENT_KINDS):
            self._filesystem.remove(self.path(kind))

    def abandon(self) -> None:
        """Free the handles, write nothing: all is written, or the files go away."""
        self.offset_index.abandon()
        self.time_index.abandon()
        self.transaction_index.close()
        for file in self._replaced_files:
            file.close()
        self._replaced_files.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _indexes(self) -> tuple[tuple[OffsetIndex | TimeIndex | TransactionIndex, str], ...]:
        return (
            (self.offset_index, OFFSET_INDEX_SUFFIX),
            (self.time_index, TIME_INDEX_SUFFIX),
            (self.transaction_index, TRANSACTION_INDEX_SUFFIX),
        )
