"""Batch by batch through a segment's file, by the headers alone."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from moldau.storage.cached_reads import CachedReads
from moldau.storage.failures import DamagedFileError
from moldau.types import Buffer

INT32_MAX = 2**31 - 1
_LOG_OVERHEAD = 12
_BATCH_LENGTH_MIN = 49
# Base offset, length, leader epoch, magic, attributes, last offset delta, max timestamp.
_HEADER = struct.Struct(">qiib4xhi8xq")


class BatchSpan(NamedTuple):
    """Where one batch lies, and what its header says about offsets and time."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int


class CorruptSegmentError(DamagedFileError):
    """Where a batch should begin there is none: the `.log` file itself is damaged."""


class Walked(Protocol):
    """The segment that is walked through."""

    @property
    def base_offset(self) -> int: ...
    def path(self) -> Path: ...
    def window(self, position: int, size: int, reads: CachedReads | None = None) -> Buffer:
        """Bytes from `position` on: at least a header, unless the file of that size ends."""


def walk_batches(
    segment: Walked, position: int, size: int, reads: CachedReads | None = None
) -> Iterator[BatchSpan]:
    """From a batch's position to the end. Raises CorruptSegmentError where no batch begins."""
    window: Buffer = b""
    window_start = 0
    floor = base_offset = segment.base_offset
    while position < size:
        at = position - window_start
        if not 0 <= at <= len(window) - _HEADER.size:
            window_start, at = position, 0
            window = segment.window(position, size, reads)
            if len(window) < _HEADER.size:
                raise CorruptSegmentError(segment.path(), f"a torn batch at {position}")
        base, length, epoch, magic, _, delta, max_timestamp = _HEADER.unpack_from(window, at)
        next_position = position + _LOG_OVERHEAD + length
        if length < _BATCH_LENGTH_MIN or magic != 2 or next_position > size:
            raise CorruptSegmentError(segment.path(), f"no batch at position {position}")
        last = base + delta
        if base < floor or delta < 0 or last - base_offset > INT32_MAX:
            raise CorruptSegmentError(segment.path(), f"impossible offset {base} at {position}")
        yield BatchSpan(position, _LOG_OVERHEAD + length, base, last, epoch, max_timestamp)
        floor = last + 1
        position = next_position
