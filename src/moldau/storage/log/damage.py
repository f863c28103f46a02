"""Damage in a log's own bytes: how it is recorded, detected, and put aside. Damaged files are never
changed or removed: they are copied or moved into `quarantine/`, which Kafka's loader ignores.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.records.scanned_batch import LAST_OFFSET, POSITION
from moldau.storage.directory.clean_stop_manifest import (
    LogInventory,
    inventory_text,
    parse_inventory,
)
from moldau.storage.disk.filesystem import File, FileSystem, read_whole, write_atomically
from moldau.storage.log.names import (
    DAMAGE_FILE_NAME,
    LOG_SUFFIX,
    QUARANTINE_DIRECTORY_NAME,
    ROLLED_SUFFIX,
    parse_segment_file_name,
    segment_path,
)
from moldau.storage.segment.scan import SegmentScan
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import Offset

if TYPE_CHECKING:
    from moldau.storage.log.log import Log
    from moldau.storage.segment.segment import Segment

_COPY_BYTES = 4 << 20
_SEGMENTS = "segments "
"""Prefix of a note's second line if the note concerns some segments only."""


class Damage(NamedTuple):
    """Records that were promised (flushed, or below the high watermark) and cannot be read."""

    first_offset: Offset
    """The sound part of the log ends at this offset."""
    promised_end: Offset
    segment_base_offset: Offset
    reason: str


def note_damage(
    filesystem: FileSystem, path: Path, reason: str, inventory: LogInventory | None = None
) -> None:
    """Makes every later start scan the whole log, even after a clean stop. With `inventory`, they
    also compare the segments with those of the last clean stop.
    """
    note = reason + "\n" + (inventory_text(inventory) + "\n" if inventory else "")
    write_atomically(filesystem, path / DAMAGE_FILE_NAME, note.encode())


def note_damaged_segments(
    filesystem: FileSystem, path: Path, reasons: Mapping[Offset, str]
) -> None:
    """Makes every later start examine these segments again, even after a clean stop."""
    reason = next(iter(reasons.values()), "")
    note = f"{reason}\n{_SEGMENTS}{json.dumps(sorted(reasons))}\n"
    write_atomically(filesystem, path / DAMAGE_FILE_NAME, note.encode())


def noted_segments(filesystem: FileSystem, path: Path) -> frozenset[int] | None:
    """Base offsets of the noted segments; None if all segments must be examined."""
    _, _, text = read_whole(filesystem, path / DAMAGE_FILE_NAME).partition(b"\n")
    if not text.startswith(_SEGMENTS.encode()):
        return None
    try:
        return frozenset(map(int, json.loads(text[len(_SEGMENTS) :])))
    except (ValueError, TypeError, RecursionError):
        return None


def noted_inventory(filesystem: FileSystem, path: Path) -> LogInventory | None:
    _, _, text = read_whole(filesystem, path / DAMAGE_FILE_NAME).partition(b"\n")
    return parse_inventory(text) if text else None


def forget_damage(filesystem: FileSystem, path: Path) -> None:
    filesystem.remove(path / DAMAGE_FILE_NAME)
    filesystem.sync_directory(path)


def scrub(log: "Log") -> Iterator[int]:
    """Check every batch's checksum, a few MiB per step, and yield the bytes checked: the caller
    sets the pace. Damage is recorded and ends the scrub with CORRUPT_MESSAGE.
    """
    for segment in list(log.segments):
        with log.damage_handler:
            if segment not in log.segments:
                # Retired since the scrub began.
                continue
            # A handle of its own: the segment's may be closed between two steps.
            file = log.filesystem.open(segment.path())
        try:
            yield from _scrub(log, segment, file)
        finally:
            file.close()


def _scrub(log: "Log", segment: "Segment", file: File) -> Iterator[int]:
    times_shortened = segment.times_shortened
    scan = SegmentScan(file, 0, segment.size, verify_crc=True, offsets=segment.offsets)
    pieces = iter(scan)
    done = 0
    while True:
        with log.damage_handler:
            if segment.times_shortened > times_shortened or segment not in log.segments:
                # A truncation removed the scanned batches; the next scrub checks the rest.
                return
            more = next(pieces, None)
            if scan.problem is not None:
                raise CorruptSegmentError(
                    segment.path(), f"{scan.problem} at position {scan.valid_end}"
                )
        yield scan.valid_end - done
        done = scan.valid_end
        if more is None:
            return


def quarantine(filesystem: FileSystem, path: Path, damage: Damage) -> list[Path]:
    """Put the damaged segment and all later ones aside, cut the log to its sound part, and forget
    the damage. The log must not be open. A crash half way leaves it damaged, with no byte lost.
    """
    aside = path / QUARANTINE_DIRECTORY_NAME
    filesystem.make_directory(aside)
    kept: list[Path] = []
    names = map(parse_segment_file_name, filesystem.list_directory(path))
    lives = {"", ROLLED_SUFFIX}
    logs = sorted(n for n in names if n and n.kind == LOG_SUFFIX and n.life in lives)
    for name in reversed(logs):
        base_offset = name.base_offset
        source = segment_path(path, base_offset, LOG_SUFFIX, name.life)
        if base_offset > damage.segment_base_offset:
            target = _free_name(filesystem, aside, source.name)
            filesystem.rename(source, target)
            kept.append(target)
        elif base_offset == damage.segment_base_offset:
            # Before the cut: otherwise a power failure could bring back segments after a hole.
            filesystem.sync_directory(aside)
            filesystem.sync_directory(path)
            kept += _cut_damaged(filesystem, source, aside, damage.first_offset)
    filesystem.sync_directory(aside)
    forget_damage(filesystem, path)
    return kept


def keep_aside(filesystem: FileSystem, source: Path) -> None:
    """Moves the file out of the log, but keeps it for an operator."""
    aside = source.parent / QUARANTINE_DIRECTORY_NAME
    filesystem.make_directory(aside)
    filesystem.rename(source, _free_name(filesystem, aside, source.name))
    filesystem.sync_directory(aside)


def _cut_damaged(
    filesystem: FileSystem, source: Path, aside: Path, end_offset: Offset
) -> list[Path]:
    file = filesystem.open(source)
    try:
        size = file.size()
        sound = _sound_bytes(SegmentScan(file, 0, size, verify_crc=True), end_offset)
        if sound == size:
            return []
        target = _free_name(filesystem, aside, source.name)
        copy = filesystem.open(target, create=True)
        try:
            for start in range(0, size, _COPY_BYTES):
                copy.append([file.read(start, min(_COPY_BYTES, size - start))])
            copy.sync()
        finally:
            copy.close()
        filesystem.sync_directory(aside)
        file.truncate(sound)
        file.sync()
    finally:
        file.close()
    return [target]


def _sound_bytes(scan: SegmentScan, end_offset: Offset) -> int:
    """The position where the batches before `end_offset` end."""
    for headers in scan:
        for header in headers:
            if header[LAST_OFFSET] >= end_offset:
                return header[POSITION]
    return scan.valid_end


def _free_name(filesystem: FileSystem, directory: Path, name: str) -> Path:
    """Earlier damage may have left a file of the same name."""
    target = directory / name
    number = 0
    while filesystem.exists(target):
        number += 1
        target = directory / f"{name}.{number}"
    return target
