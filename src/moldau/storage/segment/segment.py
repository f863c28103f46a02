"""One segment of a log: locating batches by offset, position and time, and truncation. Its files
are in segment/files.py, the maintenance of its indexes in indexed_segment.py.
"""

from collections.abc import Iterator

from moldau.protocol.records.record_loops import batches_within
from moldau.storage.disk.cached_reads import CachedReads
from moldau.storage.disk.failures import CorruptIndexError
from moldau.storage.segment.files import SegmentSettings
from moldau.storage.segment.indexed_segment import IndexedSegment
from moldau.storage.segment.walk import BatchSpan, CorruptSegmentError
from moldau.types import NO_TIMESTAMP, Offset, TimestampMs

__all__ = ["BatchSpan", "CorruptSegmentError", "Segment", "SegmentSettings"]

_NEAR_BYTES = 64 * 1024
"""Up to this distance headers are walked without an index."""
_FOLLOWING_MAX = 8
"""The number of batches remembered for readers that stopped before them."""


class Segment(IndexedSegment):
    # By offset and position

    def locate(self, offset: Offset, reads: CachedReads | None = None) -> BatchSpan | None:
        """The first batch that ends at or after `offset`; None if all end before it. Without
        `reads` it may wait for the disk.
        """
        following = self._following.get(offset)
        if following is not None:
            # An earlier fetch ended here, most likely one of the same reader.
            return following
        last = self._last_located
        if last is not None and last.base_offset <= offset <= last.last_offset:
            # Readers that wait at the end of a log all read each new batch.
            return last
        if reads is not None:
            reads.need(self, self.offset_index)
        span = self._last_located = self.with_cached(reads, self._locate, offset, reads)
        return span

    def _locate(self, offset: Offset, reads: CachedReads | None = None) -> BatchSpan | None:
        indexed_offset, position = self.offset_index.lookup(Offset(offset))
        first = position > 0
        if first and position >= self.size:
            raise CorruptIndexError(self.offset_index.path, f"({indexed_offset}, {position})")
        skipped: BatchSpan | None = None
        for span in self.walk(position, reads):
            if first and not span.base_offset <= indexed_offset <= span.last_offset:
                raise CorruptIndexError(self.offset_index.path, f"({indexed_offset}, {position})")
            first = False
            if span.last_offset >= offset:
                if span.base_offset > offset:
                    self._check_beside_gap(skipped, reads)
                    self._check_beside_gap(span, reads)
                return span
            skipped = span
        self._check_beside_gap(skipped, reads)
        return None

    def _check_beside_gap(self, span: BatchSpan | None, reads: CachedReads | None) -> None:
        """The header says that the batch ends, or begins, at a gap; check that the header
        is sound.
        """
        if span is None or self.is_checked(span.position, span.position + span.size):
            return
        if self.sound_end(span.position) > span.position:
            self.slice(span.position, span.position + span.size, reads)

    def boundary(self, limit: int, floor: int, reads: CachedReads | None = None) -> tuple[int, int]:
        """The last end of a batch at or before position `limit`, and the offset where readers
        continue after it. The batch at position `floor` ends before `limit`.
        """
        return self.with_cached(reads, self._boundary, limit, floor, reads)

    def _boundary(self, limit: int, floor: int, reads: CachedReads | None) -> tuple[int, int]:
        index = self.offset_index
        is_near = limit - floor <= _NEAR_BYTES
        if reads is not None and not is_near:
            reads.need(self, index)
            reads.read_at_once(self, floor)
        if not self.damaged:
            start = floor if is_near else max(floor, index.position_before(limit))
            boundary = self._sound_boundary(limit, start, reads)
            if boundary is not None:
                return boundary
        # The last indexed batch before the limit may end beyond it. The one before that does not,
        # so an offset is known.
        start = floor if is_near else max(floor, index.position_well_before(limit))
        return self._walked_boundary(limit, start, reads)

    def _sound_boundary(
        self, limit: int, position: int, reads: CachedReads | None
    ) -> tuple[int, int] | None:
        """None if any header from `position` on is wrong, or in doubt. The next batch is
        remembered: its reader will most likely request it.
        """
        size, next_offset = self.size, -1
        following = None
        while following is None and position < limit:
            window = self.window(position, size, reads)
            floor_offset = max(next_offset, self.base_offset)
            length, end_offset, following = batches_within(
                window, limit - position, size - position, floor_offset, self.offset_limit
            )
            if length > 0:
                position, next_offset = position + length, end_offset
            elif following is None:
                return None
        if following is not None:
            if next_offset < 0 and self.is_checked(position, position + following[0]):
                next_offset = following[1]
            if following[1] == next_offset:
                self._note_following(BatchSpan(position, *following))
        return None if next_offset < 0 else (position, next_offset)

    def _walked_boundary(
        self, limit: int, position: int, reads: CachedReads | None
    ) -> tuple[int, int]:
        next_offset = -1
        for span in self.walk(position, reads):
            if span.position + span.size > limit:
                break
            position, next_offset = span.position + span.size, span.last_offset + 1
        if next_offset < 0:
            raise CorruptIndexError(
                self.offset_index.path, f"position {position} is not before {limit}"
            )
        return position, next_offset

    def _note_following(self, span: BatchSpan) -> None:
        if len(self._following) >= _FOLLOWING_MAX:
            del self._following[next(iter(self._following))]
        self._following[span.base_offset] = span

    def next_offset(self) -> Offset:
        """The offset after the last batch. Raises CorruptSegmentError if the file ends inside a
        batch.
        """

        def read() -> int:
            last = self.offset_index.last_offset
            position = self.offset_index.lookup(last)[1]
            end = self.base_offset
            for span in self.walk(position):
                end = Offset(span.last_offset + 1)
            if end <= last and position > 0:
                raise CorruptIndexError(self.offset_index.path, f"offset {last} is not in the log")
            if self.damaged and self.damaged[-1].end >= self.size:
                raise CorruptSegmentError(self.path(), str(self.damaged[-1]))
            return end

        return Offset(self.with_indexes(read))

    def end_before(self, offset: Offset) -> Offset:
        """The offset after the last batch that lies wholly before `offset`."""

        def find() -> Offset:
            end = self.base_offset
            for span in self.walk(self.offset_index.lookup(Offset(offset - 1))[1]):
                if span.last_offset >= offset:
                    break
                end = Offset(span.last_offset + 1)
            return end

        return self.with_indexes(find)

    # By time

    def largest_timestamp_ms(self) -> int:
        """The time that retention uses: the records', or the file's if they have none."""
        timestamp_ms = self.max_timestamp[0]
        if timestamp_ms >= 0 and not self.damaged:
            return timestamp_ms
        # Damaged records may be newer than all readable ones.
        return max(timestamp_ms, self.filesystem.modified_ms(self.path()))

    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch; -1 if there is none."""
        if self._first_timestamp_ms is None:
            try:
                first = next(self.walk(), None)
            except CorruptSegmentError:
                self.examine()
                first = next(self.walk(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = first.max_timestamp_ms
        return self._first_timestamp_ms

    def prepare_appends(self) -> None:
        """Reads from the disk now everything that the first append needs."""
        _ = self.max_timestamp, self.is_full_of_entries
        self.first_timestamp_ms()

    def waited_for_roll_ms(self, now_ms: int, newest_timestamp_ms: int) -> int:
        """The age of the segment, which decides when it rolls. Uses the records' time if they have
        one: a log that is filled with old records rolls like one that is filled now.
        """
        first_ms = self.first_timestamp_ms()
        return newest_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms

    def batches_from_time(
        self, timestamp_ms: int, start_offset: Offset, reads: CachedReads | None = None
    ) -> Iterator[BatchSpan]:
        """The batches from one that is certainly before the first record at or after
        `timestamp_ms`.
        """
        if reads is not None:
            reads.need(self, self.offset_index)
            reads.need(self, self.time_index)

        def position() -> int:
            indexed_ms, offset = self.time_index.lookup(TimestampMs(timestamp_ms))
            if indexed_ms >= 0:
                span = self._locate(offset, reads)
                if span is None or span.max_timestamp_ms != indexed_ms:
                    raise CorruptIndexError(self.time_index.path, f"({indexed_ms}, {offset})")
            return self.offset_index.lookup(Offset(max(offset, start_offset)))[1]

        return self.walk(self.with_cached(reads, position), reads)

    # Truncation

    def truncate_to(self, offset: Offset) -> int:
        """Drop the batch that contains `offset` and all after it; the caller syncs the file.
        Returns the number of bytes dropped.
        """
        span = self.locate(offset)
        size = self.size
        self.with_indexes(self._truncate_indexes, Offset(offset))
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

    def _truncate_indexes(self, offset: Offset) -> None:
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
