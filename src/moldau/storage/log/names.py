"""The file names in a partition's directory, exactly as Kafka's. The files of a segment share
twenty digits, its base offset; a suffix after the kind marks the file's stage of life.
"""

from pathlib import Path
from typing import NamedTuple

from moldau.types import Offset

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
"""Removed from the log, on disk until file.delete.delay.ms has passed."""
CLEANED_SUFFIX = ".cleaned"
"""A compaction is writing it: useless after a crash."""
SWAP_SUFFIX = ".swap"
"""Completely written by a compaction: after a crash it replaces the files it was made from."""
ROLLED_SUFFIX = ".rolled"
"""For a `.log` file that was begun before the previous segment was on the disk: after a crash it is
valid only if it continues that segment."""

# Code outside of this package owns the raft snapshots (`<offset>-<epoch>.checkpoint`).
RAFT_SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"

PARTITION_METADATA_NAME = "partition.metadata"

QUARANTINE_DIRECTORY_NAME = "quarantine"
"""Damaged segments are kept here. Kafka's loader looks at plain files only."""

DAMAGE_FILE_NAME = "damage-found"
"""While this file exists, the log is scanned from its start. Kafka does not know it and
ignores it.
"""

SEGMENT_KINDS = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
INDEX_KINDS = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_KINDS = frozenset((*SEGMENT_KINDS, SNAPSHOT_SUFFIX))
_LIFE_SUFFIXES = frozenset((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ROLLED_SUFFIX))
OFFSET_DIGITS = 20


class SegmentFileName(NamedTuple):
    """`00000000000000000042.log.swap` is (42, ".log", ".swap")."""

    base_offset: Offset
    kind: str
    life: str

    def __str__(self) -> str:
        return f"{self.base_offset:020d}{self.kind}{self.life}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """None for a file that does not belong to a segment."""
    digits, rest = name[:OFFSET_DIGITS], name[OFFSET_DIGITS:]
    if len(digits) != OFFSET_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    _, kind, *lives = rest.split(".") if rest.startswith(".") else ("", "", "")
    life = "." + lives[0] if lives else ""
    if len(lives) > 1 or "." + kind not in _KINDS or (life and life not in _LIFE_SUFFIXES):
        return None
    return SegmentFileName(Offset(int(digits)), "." + kind, life)


def segment_path(directory: Path, base_offset: Offset, kind: str, life: str = "") -> Path:
    return directory / f"{base_offset:020d}{kind}{life}"
