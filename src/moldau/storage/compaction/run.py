"""One compaction pass: learn the last offset of every key, then rewrite each group of segments as
`*.cleaned`. It touches only sealed files and its own output, no object of the log's owner, so it
may run in a thread; the owner swaps the result in.

The checksum of every batch is verified before it is copied: a rewritten batch gets a new checksum,
which must not certify damaged bytes.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.batches import (
    CONTROL_FLAG,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_OFFSET,
    PRODUCER_ID_OFFSET,
    TRANSACTIONAL_FLAG,
)
from moldau.protocol.records.record_loops import INCOMPLETE, scan_batches
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    PRODUCER_ID,
    RECORD_COUNT,
    ScannedBatch,
)
from moldau.storage.compaction.filter import (
    BatchFilter,
    FilterCounts,
    batch_body,
    control_type_in,
)
from moldau.storage.compaction.loops import OffsetMap, index_records
from moldau.storage.compaction.plan import CompactionPlan, SourceSegment, group_segments
from moldau.storage.compaction.transactions import TransactionTracker
from moldau.storage.disk.failures import WRITES_REFUSED
from moldau.storage.disk.filesystem import File, FileSystem, sync_path
from moldau.storage.log.damaged_bytes import DamagedBytes, find_damage
from moldau.storage.log.names import CLEANED_SUFFIX
from moldau.storage.segment.scan import STRAY_OFFSETS
from moldau.storage.segment.segment import Segment, SegmentSettings
from moldau.types import Buffer, Offset

_log = logging.getLogger(__name__)

WRITE_BYTES = 1 << 20

OnIo = Callable[[int], None]

# Retention removed a source, or the disk refused the copy: the log itself is intact.
_HARMLESS = frozenset({errno.ENOENT}) | WRITES_REFUSED


class CompactionAbortedError(MoldauError):
    """The log changed under the pass, or its owner stopped the pass; nothing was swapped in."""


class DamagedSourceError(MoldauError):
    """A segment has damage that its log did not know of. The next pass skips that segment."""

    def __init__(self, path: Path, damaged: tuple[DamagedBytes, ...]) -> None:
        super().__init__(f"{path.name}: {damaged[0]}")
        self.path = path
        self.damaged = damaged


@frozen
class CleanedGroup:
    """One finished segment and the base offsets of those that it replaces."""

    cleaned: Segment
    replaced: tuple[Offset, ...]


class CompactionPass:
    """Call `learn_keys` once, then `clean_next_group` until it returns None, never from two threads
    at once. `should_stop` is called between reads; `on_io` is called with the number of bytes read
    or written and may block.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        plan: CompactionPlan,
        offset_map: OffsetMap,
        *,
        io_buffer_bytes: int,
        should_stop: Callable[[], bool] = lambda: False,
        on_io: OnIo = lambda _bytes: None,
    ) -> None:
        self.plan = plan
        self.end_offset = plan.first_dirty_offset
        """The log is clean up to here after the pass; at this offset the map was full."""
        self._filesystem = filesystem
        self._map = offset_map
        self._io_buffer_bytes = io_buffer_bytes
        self._should_stop = should_stop
        self._on_io = on_io
        self._groups: list[list[SourceSegment]] = []
        self._transactions = TransactionTracker(plan.aborted)
        self._filter = BatchFilter(
            offset_map,
            self._transactions,
            plan.last_records,
            end_offset=plan.first_uncleanable_offset,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.config.delete_retention_ms,
        )

    @property
    def counts(self) -> FilterCounts:
        return self._filter.counts

    def learn_keys(self) -> None:
        plan, offset_map = self.plan, self._map
        offset_map.clear()
        start = plan.first_dirty_offset
        # Without a dirty record, expired tombstones are still removed.
        offset_map.latest_offset = start - 1
        transactions = TransactionTracker(plan.aborted)
        position = plan.dirty_position
        for number, source in enumerate(plan.sources, 1):
            is_last = number == len(plan.sources)
            end = plan.first_uncleanable_offset if is_last else plan.sources[number].base_offset
            if end <= start:
                continue
            if self._learn_segment(source, position, transactions):
                break
            # Covers offsets that an earlier pass removed, and gaps.
            offset_map.latest_offset = end - 1
            position = 0
        self.end_offset = Offset(offset_map.latest_offset + 1)
        sources = [source for source in plan.sources if source.base_offset < self.end_offset]
        self._groups = group_segments(sources, plan.config, plan.first_uncleanable_offset)
        self._groups.reverse()

    def _learn_segment(
        self, source: SourceSegment, position: int, transactions: TransactionTracker
    ) -> bool:
        """Returns True when the map is full."""
        start = self.plan.first_dirty_offset
        offset_map = self._map
        for view, headers in self._read(source, position):
            for header in headers:
                last_offset, attributes = header[LAST_OFFSET], header[ATTRIBUTES]
                if attributes & CONTROL_FLAG:
                    marker = control_type_in(view, header)
                    transactions.on_control(last_offset, header[PRODUCER_ID], marker)
                elif not (
                    attributes & TRANSACTIONAL_FLAG
                    and transactions.on_data(last_offset, header[PRODUCER_ID])
                ):
                    body = batch_body(view, header)
                    if index_records(
                        offset_map, body, header[RECORD_COUNT], header[BASE_OFFSET], start
                    ):
                        return True
                if last_offset >= start:
                    offset_map.latest_offset = last_offset
        return False

    def clean_next_group(self) -> CleanedGroup | None:
        """Returns None when the pass is complete. After an error no `*.cleaned` file of the group
        is left.
        """
        while self._groups and self._groups[-1][0].damaged:
            self._skip_damaged(*self._groups.pop())
        if not self._groups:
            return None
        group = self._groups.pop()
        config = self.plan.config
        cleaned = Segment(
            self._filesystem,
            self.plan.directory,
            group[0].base_offset,
            SegmentSettings(config.index_interval_bytes, config.segment_index_bytes),
            created_ms=self.plan.now_ms,
            life=CLEANED_SUFFIX,
        )
        try:
            self._write(cleaned, group)
        except OSError as error:
            cleaned.remove_files()
            if error.errno in _HARMLESS:
                raise CompactionAbortedError(f"{self.plan.topic_partition}: {error}") from error
            raise
        except BaseException:
            cleaned.remove_files()
            raise
        return CleanedGroup(cleaned, tuple(source.base_offset for source in group))

    def _skip_damaged(self, source: SourceSegment) -> None:
        """A damaged segment is not rewritten and keeps its transaction index; markers of
        transactions that have data in it are kept in the other segments.
        """
        _log.warning(
            "%s: %s is damaged (%s) and is not compacted, unlike the other segments",
            self.plan.topic_partition, source.path.name, source.damaged[0],
        )  # fmt: skip
        for view, headers in self._read(source, 0):
            for header in headers:
                last_offset, producer_id = header[LAST_OFFSET], header[PRODUCER_ID]
                if header[ATTRIBUTES] & CONTROL_FLAG:
                    marker = control_type_in(view, header)
                    self._transactions.on_control(last_offset, producer_id, marker)
                elif header[ATTRIBUTES] & TRANSACTIONAL_FLAG:
                    self._transactions.on_data(last_offset, producer_id)
        self._transactions.take_kept_aborts()

    def _write(self, cleaned: Segment, group: list[SourceSegment]) -> None:
        cleaned.create()
        writer = _SegmentWriter(cleaned, self._on_io)
        for source in group:
            for view, headers in self._read(source, 0):
                for batch, last_offset in self._filter.filter(view, headers):
                    writer.add(batch, last_offset)
                writer.flush_if_large()
        writer.flush()
        for aborted in self._transactions.take_kept_aborts():
            cleaned.transaction_index.append(aborted)
        cleaned.seal()
        for path in cleaned.paths_to_sync():
            sync_path(self._filesystem, path)
        # The owner opens it again, in another thread.
        cleaned.release()

    def _read(
        self, source: SourceSegment, position: int
    ) -> Iterator[tuple[memoryview, list[ScannedBatch]]]:
        """Yields whole batches, a buffer at a time; the buffer grows for a larger batch."""
        try:
            file = self._filesystem.open(source.path)
        except FileNotFoundError:
            raise CompactionAbortedError(f"{source.path} is gone") from None
        try:
            read_bytes = self._io_buffer_bytes
            next_offset = source.base_offset
            while position < source.size_bytes:
                if self._should_stop():
                    raise CompactionAbortedError(
                        f"{self.plan.topic_partition}: the pass was stopped"
                    )
                position, end = _sound_piece(source, position)
                view = memoryview(file.read(position, min(read_bytes, end - position)))
                self._on_io(len(view))
                headers, scanned, problem = scan_batches(view, 0, len(view), True)
                if problem is not None and problem != INCOMPLETE:
                    raise _damaged(source, file, position + scanned, problem)
                if headers:
                    if (
                        headers[0][BASE_OFFSET] < next_offset
                        or headers[-1][LAST_OFFSET] >= source.offset_limit
                    ):
                        raise _damaged(source, file, position, STRAY_OFFSETS)
                    next_offset = Offset(headers[-1][LAST_OFFSET] + 1)
                    yield view, headers
                    read_bytes = self._io_buffer_bytes
                elif position < end:
                    read_bytes = _whole_batch(view)
                    if not len(view) < read_bytes <= end - position:
                        raise _damaged(source, file, position, INCOMPLETE)
                position += scanned
        finally:
            file.close()


class _SegmentWriter:
    """Appends batches in large writes."""

    def __init__(self, segment: Segment, on_io: OnIo) -> None:
        self._segment = segment
        self._on_io = on_io
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._position = 0

    def add(self, batch: Buffer, last_offset: Offset) -> None:
        size = len(batch)
        # Taken from the new header: the record with the largest timestamp may have been removed.
        stamp = batch[MAX_TIMESTAMP_OFFSET:PRODUCER_ID_OFFSET]
        max_timestamp_ms = int.from_bytes(stamp, "big", signed=True)
        if not self._segment.is_full_of_entries:
            self._segment.index_batch(self._position, last_offset, max_timestamp_ms)
        self._pending.append(batch)
        self._pending_bytes += size
        self._position += size

    def flush_if_large(self) -> None:
        if self._pending_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._segment.file.append(self._pending)
            self._on_io(self._pending_bytes)
            self._pending = []
            self._pending_bytes = 0


def _sound_piece(source: SourceSegment, position: int) -> tuple[int, int]:
    """Start and end of the next bytes without known damage."""
    for each in source.damaged:
        if position < each.position:
            return position, each.position
        position = max(position, each.end)
    return position, source.size_bytes


def _whole_batch(view: memoryview) -> int:
    """The full size of the batch that the view cuts off."""
    if len(view) < LOG_OVERHEAD:
        return LOG_OVERHEAD
    return LOG_OVERHEAD + int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True)


def _damaged(
    source: SourceSegment, file: File, position: int, problem: str
) -> DamagedSourceError | KafkaError:
    offsets = range(source.base_offset, source.offset_limit)
    found = find_damage(file, source.size_bytes, offsets)
    known = {(each.position, each.end) for each in source.damaged}
    if any((each.position, each.end) not in known for each in found):
        return DamagedSourceError(source.path, found)
    # The segment reads differently each time.
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{source.path.name} at position {position}: {problem}"
    )
