"""Puts a cleaned segment in the place of those it was made from. A crash at any point leaves the
old ones or the new one:

1. `*.cleaned` -> `*.swap`. A crash before the last of these renames: all of it is dropped.
2. old files -> `*.deleted`. A crash from here on: the loader removes old files in the range of the
   swap file and completes step 3.
3. `*.swap` -> the final names.

Each step is on the disk before the next begins; otherwise a crash could keep step 3 and lose step
2, and old segments would overlap the new one.
"""

from moldau.storage.failures import SyncFailedError
from moldau.storage.log import Log
from moldau.storage.log_names import SWAP_SUFFIX
from moldau.storage.segment import Segment


def replace_segments(log: Log, cleaned: Segment, old: list[Segment], now_ms: int) -> None:
    """`cleaned` is synced. The old segments stay readable until file.delete.delay.ms is over."""
    with log.guard, log.filesystem.hold_directory(log.path) as sync:
        cleaned.change_life(SWAP_SUFFIX)
        sync()
        try:
            log.retire(old, now_ms)
            # The producers as they were where the segment begins: that has not changed.
            log.snapshots.unmark_deleted(cleaned.base_offset)
            sync()
            cleaned.change_life("")
            sync()
        except OSError as error:
            # Whatever the reason: now the log has a hole, which only a start can fill.
            raise SyncFailedError(error.errno, error.strerror) from error
        log.segments.add(cleaned)
