"""Puts a cleaned segment in the place of those it was made from. A crash at any point leaves the
old ones or the new one:

1. `*.cleaned` -> `*.swap`. A crash before the last of these renames: all of it is dropped.
2. old files -> `*.deleted`. A crash from here on: the loader removes old files in the range of the
   swap file and completes step 3.
3. `*.swap` -> the final names.

Each step is on the disk before the next begins; otherwise a crash could keep step 3 and lose step
2, and old segments would overlap the new one.
"""

from collections.abc import Callable

from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import SyncFailedError
from moldau.storage.log.log import Log
from moldau.storage.log.names import SWAP_SUFFIX
from moldau.storage.segment.segment import Segment


def replacing_segments(log: Log, cleaned: Segment, old: list[Segment], now_ms: int) -> Steps[None]:
    """`cleaned` is synced. The old segments are read until it is in their place, and stay until
    file.delete.delay.ms is over.
    """
    log.is_swapping = True
    try:
        with log.guard, log.filesystem.hold_directory(log.path) as sync:
            cleaned.change_life(SWAP_SUFFIX)
            yield sync
            if log.is_abandoned:
                return
            retire = yield from _renaming(log, cleaned, (old, now_ms), sync)
            if log.is_abandoned:
                return
            retire()
            log.segments.add(cleaned)
    finally:
        log.is_swapping = False


def _renaming(
    log: Log, cleaned: Segment, old: tuple[list[Segment], int], sync: Callable[[], None]
) -> Steps[Callable[[], None]]:
    try:
        retire = log.retire_later(*old)
        # The producers as they were where the segment begins: that has not changed.
        log.snapshots.unmark_deleted(cleaned.base_offset)
        yield sync
        if not log.is_abandoned:
            cleaned.change_life("")
            yield sync
    except OSError as error:
        # Whatever the reason: now the log has a hole, which only a start can fill.
        raise SyncFailedError(error.errno, error.strerror) from error
    return retire
