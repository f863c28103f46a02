"""Replaces old segments with the cleaned one that was made from them. A crash at any point leaves
either the old ones or the new one:

1. `*.cleaned` -> `*.swap`. A crash before the last of these renames: all `*.swap` are dropped.
2. old files -> `*.deleted`. A crash from here on: the loader removes old files in the range of the
   swap file and completes step 3.
3. `*.swap` -> the final names.

Each step is synced before the next begins. Otherwise a crash could keep step 3 and lose step 2, and
old segments would overlap the new one.
"""

from collections.abc import Callable

from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import SyncFailedError
from moldau.storage.log.log import Log
from moldau.storage.log.names import SWAP_SUFFIX
from moldau.storage.segment.segment import Segment


def replacing_segments(log: Log, cleaned: Segment, old: list[Segment], now_ms: int) -> Steps[None]:
    """`cleaned` is synced. The old segments serve reads until it has replaced them, and their files
    remain for file.delete.delay.ms.
    """
    log.is_swapping = True
    try:
        with log.damage_handler, log.filesystem.hold_directory(log.path) as sync:
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
        # The producers as of the segment's first offset: compaction does not change them.
        log.snapshots.unmark_deleted(cleaned.base_offset)
        yield sync
        if not log.is_abandoned:
            cleaned.change_life("")
            yield sync
    except OSError as error:
        # For any error: the log now has a hole, which only the next start can repair.
        raise SyncFailedError(error.errno, error.strerror) from error
    return retire
