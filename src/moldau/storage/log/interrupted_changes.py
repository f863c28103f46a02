"""Completes or undoes the changes that a crash interrupted in a partition's directory, before its
segments are loaded. Kafka's protocol: compaction writes `.cleaned` files, renames them to `.swap`
from the last to the first, removes the files they replace, and renames them to their final names.
"""

from pathlib import Path

from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.log.damage import keep_aside
from moldau.storage.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_KINDS,
    LOG_SUFFIX,
    RAFT_SNAPSHOT_DELETED_SUFFIX,
    SWAP_SUFFIX,
    SegmentFileName,
    parse_segment_file_name,
)
from moldau.storage.segment.scan import SegmentScan
from moldau.storage.segment.segment import Segment, SegmentSettings


def complete_or_undo(
    filesystem: FileSystem, path: Path, listed: list[str], settings: SegmentSettings
) -> list[SegmentFileName]:
    """Returns the files that make up the log. A second call changes nothing."""
    files = [name for name in map(parse_segment_file_name, listed) if name is not None]
    if any(name.life for name in files) or any(n.endswith(DELETED_SUFFIX) for n in listed):
        _drop_deleted(filesystem, path, listed)
        _finish_swaps(filesystem, path, files, settings)
        filesystem.sync_directory(path)
        listed = filesystem.list_directory(path)
        files = [name for name in map(parse_segment_file_name, listed) if name is not None]
    return _drop_orphans(filesystem, path, files)


def _drop_deleted(filesystem: FileSystem, path: Path, listed: list[str]) -> None:
    for name in listed:
        if name.endswith(DELETED_SUFFIX) and not name.endswith(RAFT_SNAPSHOT_DELETED_SUFFIX):
            filesystem.remove(path / name)


def _finish_swaps(
    filesystem: FileSystem, path: Path, files: list[SegmentFileName], settings: SegmentSettings
) -> None:
    cleaned = [name for name in files if name.life == CLEANED_SUFFIX]
    swaps = [name for name in files if name.life == SWAP_SUFFIX]
    if cleaned:
        # Renaming goes from the last to the first: while a `.cleaned` file is left it was
        # incomplete, and all files to be replaced still exist.
        first_cleaned = min(name.base_offset for name in cleaned)
        for name in [s for s in swaps if s.base_offset >= first_cleaned]:
            filesystem.remove(path / str(name))
            swaps.remove(name)
        for name in cleaned:
            filesystem.remove(path / str(name))
    logs = [name for name in swaps if name.kind == LOG_SUFFIX]
    if logs:
        start = min(name.base_offset for name in logs)
        end = max(_swapped_end(filesystem, path, name, settings) for name in logs)
        # A damaged swap file is not used: the files that it replaces may be the only sound copy.
        is_sound = all(_is_sound(filesystem, path / str(name)) for name in logs)
        for name in files:
            if name.life == "" and start <= name.base_offset < end:
                if is_sound or name.kind != LOG_SUFFIX:
                    filesystem.remove(path / str(name))
                else:
                    keep_aside(filesystem, path / str(name))
    if swaps:
        # Otherwise a power failure could keep the renames and lose the removals: old segments would
        # overlap the new one, without a swap file to show it.
        filesystem.sync_directory(path)
    for name in swaps:
        filesystem.rename(path / str(name), path / str(name._replace(life="")))


def _swapped_end(
    filesystem: FileSystem, path: Path, name: SegmentFileName, settings: SegmentSettings
) -> int:
    segment = Segment(filesystem, path, name.base_offset, settings, created_ms=0, life=SWAP_SUFFIX)
    try:
        return segment.next_offset()
    finally:
        segment.abandon()


def _is_sound(filesystem: FileSystem, path: Path) -> bool:
    file = filesystem.open(path)
    try:
        scan = SegmentScan(file, 0, file.size(), verify_crc=True)
        for _ in scan:
            pass
        return scan.problem is None
    finally:
        file.close()


def _drop_orphans(
    filesystem: FileSystem, path: Path, files: list[SegmentFileName]
) -> list[SegmentFileName]:
    """Removes indexes without a log; they are useless."""
    bases = {name.base_offset for name in files if name.kind == LOG_SUFFIX}
    kept: list[SegmentFileName] = []
    for name in files:
        if name.kind in INDEX_KINDS and name.base_offset not in bases:
            filesystem.remove(path / str(name))
        else:
            kept.append(name)
    return kept
