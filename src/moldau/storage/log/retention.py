"""Which old segments go: those behind the log's start, those too many, those too old. Never one
that reaches past the last stable offset, which readers of committed records have not seen yet. A
log that only compacts loses what lies behind its start.
"""

from collections.abc import Callable

from moldau.storage.disk.cached_reads import CachedReads
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.log.log import Log
from moldau.storage.segment.segment import Segment
from moldau.types import Offset

_Expired = Callable[[Segment, Offset], bool]


def delete_old_segments(log: Log, now_ms: int, reads: CachedReads | None = None) -> int:
    """First step of their deletion; `log.remove_deleted` is the second. How many there were. Given
    `reads` it raises NotCachedError rather than wait for the disk: then ask again.
    """
    if log.is_swapping:
        # The next round looks again.
        return 0
    with log.guard:
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
        segment.know_max_timestamp(reads)
        return now_ms - segment.largest_timestamp_ms() > retention_ms

    return _delete(log, now_ms, is_too_old)


def _delete(log: Log, now_ms: int, is_expired: _Expired) -> int:
    """A prefix of the segments. If all go, a new one begins at the log's end first."""
    expired: list[Segment] = []
    last_stable_offset = log.last_stable_offset
    for place, segment in enumerate(log.segments):
        end_offset = log.segments.end_of(place, log.log_end_offset)
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
            # The others make room.
            expired.pop()
    if not expired:
        return 0
    log.advance_log_start(log.segments[len(expired)].base_offset)
    log.retire(expired, now_ms)
    return len(expired)
