"""Chooses the old segments to delete: before the log's start, beyond the size limit, or too old.
Never a segment that extends past the last stable offset, which committed readers have not reached
yet. A log that is only compacted loses just the segments before its start.
"""

from collections.abc import Callable

from moldau.storage.disk.cached_reads import CachedReads
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.log.log import Log
from moldau.storage.segment.segment import Segment
from moldau.types import Offset

_Expired = Callable[[Segment, Offset], bool]


def delete_old_segments(log: Log, now_ms: int, reads: CachedReads | None = None) -> int:
    """First step of the deletion; `log.remove_deleted` is the second. Returns the number of
    segments. With `reads` it raises NotCachedError instead of waiting for the disk: call it again
    then.
    """
    if log.is_swapping:
        # The next round tries again.
        return 0
    with log.damage_handler:
        deleted = _delete(log, now_ms, lambda _, end: end <= log.log_start_offset)
        if log.config.deletes:
            deleted += _delete_by_size(log, now_ms)
            deleted += _delete_by_time(log, now_ms, reads)
        return deleted


def _delete_by_size(log: Log, now_ms: int) -> int:
    retention_bytes = log.config.retention_bytes
    excess = log.segments.size_in_bytes - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0

    def is_too_much(segment: Segment, _end_offset: Offset) -> bool:
        nonlocal excess
        if segment.size > excess:
            return False
        excess -= segment.size
        return True

    return _delete(log, now_ms, is_too_much)


def _delete_by_time(log: Log, now_ms: int, reads: CachedReads | None) -> int:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0

    def is_too_old(segment: Segment, _end_offset: Offset) -> bool:
        segment.load_max_timestamp(reads)
        return now_ms - segment.largest_timestamp_ms() > retention_ms

    return _delete(log, now_ms, is_too_old)


def _delete(log: Log, now_ms: int, is_expired: _Expired) -> int:
    """Deletes a prefix of the segments. If it covers all, a new one is created at the log's end
    first.
    """
    expired: list[Segment] = []
    last_stable_offset = log.last_stable_offset
    for index, segment in enumerate(log.segments):
        end_offset = log.segments.end_of(index, log.log_end_offset)
        is_empty_end = segment is log.segments.active and segment.size == 0
        if (
            is_empty_end
            or end_offset > last_stable_offset
            or not is_expired(segment, Offset(end_offset))
        ):
            break
        expired.append(segment)
    if len(expired) == len(log.segments):
        try:
            log.roll(now_ms)
        except DiskFullError:
            # Deleting the others makes room.
            expired.pop()
    if not expired:
        return 0
    log.advance_log_start(log.segments[len(expired)].base_offset)
    log.retire(expired, now_ms)
    return len(expired)
