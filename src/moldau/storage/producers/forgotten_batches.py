"""Searches the log for a producer's batches that its snapshot lacks: a snapshot has only the last
one, and retries of earlier batches may be in flight when a node starts. A thread does it, with
files that it opens by name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.records.batches import CONTROL_FLAG
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    ScannedBatch,
)
from moldau.storage.disk.cached_reads import Adopt, NotCachedError
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.log.damaged_bytes import TolerantScan
from moldau.storage.producers.entry import BatchMetadata, ProducerEntry, increment_sequence
from moldau.types import Offset, ProducerEpoch

if TYPE_CHECKING:
    from pathlib import Path

    from moldau.storage.segment.indexed_segment import IndexedSegment
    from moldau.storage.segment.segments import Segments

SEARCH_BYTES = 4 << 20
"""The search goes back this far: batches of requests in flight are close together."""

Found = Callable[[list[BatchMetadata]], None]
"""Called with the batches that precede the remembered ones, oldest first."""


class _File(NamedTuple):
    path: "Path"
    size: int
    segment: "IndexedSegment"
    """The same segment for the thread alone, with indexes of its own."""


class _Producer(NamedTuple):
    producer_id: int
    epoch: ProducerEpoch
    end_offset: Offset
    """The base offset of the first remembered batch."""


class ForgottenBatches:
    def __init__(self, segments: "Segments") -> None:
        self._segments = segments

    def search(self, entry: ProducerEntry, found: Found) -> NotCachedError:
        """Returns the error for the caller to raise."""
        end_offset = entry.batches[0].first_offset if entry.batches else 0
        producer = _Producer(entry.producer_id, entry.epoch, Offset(end_offset))
        files: list[_File] = []
        searched_bytes = 0
        for segment in reversed(self._segments.overlapping(Offset(0), Offset(end_offset))):
            files.append(_File(segment.path(), segment.size, segment.copy_for_thread()))
            # The last one also holds later batches.
            searched_bytes += segment.size if len(files) > 1 else 0
            if searched_bytes >= SEARCH_BYTES:
                break

        def work() -> Adopt:
            batches = _search(files, producer)
            return lambda: found(batches)

        path = self._segments.active.path()
        return NotCachedError(path, work, SEARCH_BYTES, lambda: False)


def _search(files: list[_File], producer: _Producer) -> list[BatchMetadata]:
    found: list[BatchMetadata] = []
    bytes_left = SEARCH_BYTES
    for file in files:
        try:
            headers, searched_bytes = _headers(file, producer.end_offset, bytes_left)
        except (FileNotFoundError, DamagedFileError):
            # Deleted in the meantime, or without a usable index. Batches that are not found count
            # as forgotten.
            break
        found = [_metadata(h) for h in headers if _is_data_of(producer, h)] + found
        bytes_left -= searched_bytes
        if bytes_left <= 0:
            break
    return found


def _headers(file: _File, end_offset: Offset, bytes_max: int) -> tuple[list[ScannedBatch], int]:
    """Headers of the batches before the offset, and the number of bytes read."""
    path, size, segment = file
    index = segment.offset_index
    # At the offset, or shortly before it.
    near_end = index.lookup(Offset(end_offset))[1]
    start = index.position_before(near_end - bytes_max) if near_end > bytes_max else 0
    position, headers = start, []
    opened = segment.filesystem.open(path)
    try:
        offsets = range(segment.base_offset, segment.offset_limit)
        for piece in TolerantScan(opened, start, size, offsets=offsets):
            headers += [header for header in piece if header[LAST_OFFSET] < end_offset]
            if not piece:
                continue
            position = piece[-1][POSITION] + piece[-1][SIZE]
            if piece[-1][LAST_OFFSET] >= end_offset or position - start > 2 * SEARCH_BYTES:
                break
    finally:
        opened.close()
    return headers, position - start


def _is_data_of(producer: _Producer, header: ScannedBatch) -> bool:
    is_data = not header[ATTRIBUTES] & CONTROL_FLAG
    return (
        is_data
        and header[PRODUCER_ID] == producer.producer_id
        and header[PRODUCER_EPOCH] == producer.epoch
    )


def _metadata(header: ScannedBatch) -> BatchMetadata:
    last_sequence = increment_sequence(header[BASE_SEQUENCE], header[LAST_OFFSET_DELTA])
    return BatchMetadata(
        header[BASE_SEQUENCE],
        last_sequence,
        header[BASE_OFFSET],
        header[LAST_OFFSET],
        header[MAX_TIMESTAMP],
    )
