"""Iterates over the batches of a segment's file by their headers alone."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.protocol.records.batches import BATCH_LENGTH_MIN, LOG_OVERHEAD
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.log.damaged_bytes import DamagedBytes
from moldau.types import NO_EPOCH, NO_TIMESTAMP, Buffer, LeaderEpoch, Offset

if TYPE_CHECKING:
    from moldau.storage.disk.cached_reads import CachedReads

# Base offset, length, leader epoch, magic, attributes, last offset delta, max timestamp.
_HEADER = struct.Struct(">qiib4xhi8xq")


class BatchSpan(NamedTuple):
    """The position of one batch, with its header's offsets and times."""

    position: int
    size: int
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp_ms: int


class CorruptSegmentError(DamagedFileError):
    """No batch begins where one should: the `.log` file itself is damaged."""


class WalkedSegment(Protocol):
    """The segment that is being walked."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def offset_limit(self) -> Offset: ...
    @property
    def damaged(self) -> tuple[DamagedBytes, ...]: ...
    def path(self) -> Path: ...
    def window(self, position: int, size: int, reads: "CachedReads | None" = None) -> Buffer:
        """Bytes from `position` on: at least a header, unless the file of that size ends."""


def damaged_at(damaged: tuple[DamagedBytes, ...], position: int) -> BatchSpan | None:
    """The damage as if it were a batch: an index may point inside it."""
    for each in damaged:
        if each.position <= position < each.end:
            size, last_offset = each.end - each.position, each.next_offset - 1
            return BatchSpan(
                each.position, size, each.first_offset, Offset(last_offset), NO_EPOCH, NO_TIMESTAMP
            )
    return None


def walk_batches(
    segment: WalkedSegment, position: int, size: int, reads: "CachedReads | None" = None
) -> Iterator[BatchSpan]:
    """From a batch's position to the end. Bytes known to be damaged count as a batch with the lost
    offsets. Raises CorruptSegmentError at any other position where no batch begins.
    """
    window: Buffer = b""
    window_start = 0
    floor, limit = segment.base_offset, segment.offset_limit
    damaged = segment.damaged
    while position < size:
        if damaged and (lost := damaged_at(damaged, position)) is not None:
            yield lost
            floor, position = Offset(lost.last_offset + 1), lost.position + lost.size
            continue
        at = position - window_start
        if not 0 <= at <= len(window) - _HEADER.size:
            window_start, at = position, 0
            window = segment.window(position, size, reads)
            if len(window) < _HEADER.size:
                raise CorruptSegmentError(segment.path(), f"a torn batch at {position}")
        base, length, epoch, magic, _, delta, max_timestamp = _HEADER.unpack_from(window, at)
        next_position = position + LOG_OVERHEAD + length
        if length < BATCH_LENGTH_MIN or magic != 2 or next_position > size:
            raise CorruptSegmentError(segment.path(), f"no batch at position {position}")
        last = base + delta
        if base < floor or delta < 0 or last >= limit:
            raise CorruptSegmentError(segment.path(), f"impossible offset {base} at {position}")
        yield BatchSpan(position, LOG_OVERHEAD + length, base, last, epoch, max_timestamp)
        floor = last + 1
        position = next_position
