"""Inspects directories. A partition shows all its files in order; a log directory shows one row for
each partition and reports only the problems of its files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from moldau.storage.directory.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from moldau.storage.directory.directory import (
    CLEAN_STOP_FILE,
    DirectoryKind,
    PartitionDirectory,
    parse_directory_name,
)
from moldau.storage.directory.meta_properties import META_PROPERTIES_FILE
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.inspection.files import inspect_file
from moldau.storage.inspection.items import (
    DirectoryEnd,
    DirectoryStart,
    FileEnd,
    FileKind,
    FileStart,
    Item,
    PartitionFound,
    Problem,
    PropertyFound,
    Remark,
)
from moldau.storage.inspection.names import FileName, parse_file_name, shown_order
from moldau.storage.inspection.options import InspectionOptions
from moldau.storage.log.names import QUARANTINE_DIRECTORY_NAME
from moldau.types import FIRST_OFFSET, Offset, TopicPartition

_STATES = {
    DirectoryKind.PARTITION: "",
    DirectoryKind.DELETED: "waits for deletion",
    DirectoryKind.FUTURE: "future replica",
    DirectoryKind.STRAY: "stray",
}
_SEGMENT_KINDS = frozenset(
    {FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.PRODUCER_SNAPSHOT}
)


def is_partition_directory(path: Path, options: InspectionOptions) -> bool:
    """Also true for a copy of a partition that lost its name but holds segments."""
    names = options.filesystem.list_directory(path)
    return any(parse_file_name(name).kind in _SEGMENT_KINDS for name in names)


def inspect_partition_directory(path: Path, options: InspectionOptions) -> Iterator[Item]:
    directory = parse_directory_name(path.name)
    state = _STATES[directory.kind] if directory else ""
    yield DirectoryStart(path, "partition", (("state", state),) if state else ())
    totals = _PartitionTotals(path)
    for item in _partition_items(path, options, totals):
        totals.add(item)
        yield item
    yield DirectoryEnd(path, totals.row(path.name, state), totals.problems)


def inspect_log_directory(path: Path, options: InspectionOptions) -> Iterator[Item]:
    filesystem = options.filesystem
    names = filesystem.list_directory(path)
    files = [name for name in names if not filesystem.is_directory(path / name)]
    parsed = [parse_directory_name(name) for name in names if name not in files]
    partitions = [partition for partition in parsed if partition is not None]
    facts: list[tuple[str, int | str]] = []
    problems = 0
    complaints: list[Item] = []
    for name in files:
        for item in _top_level_file(path / name, options):
            if isinstance(item, PropertyFound) and name == META_PROPERTIES_FILE:
                facts.append((item.name, item.value))
            elif isinstance(item, Problem | Remark):
                complaints.append(item)
    facts.append(("stopped", "cleanly" if CLEAN_STOP_FILE in files else "not cleanly, or running"))
    yield DirectoryStart(path, "log directory", tuple(facts))
    complaints += _stop_remarks(path, files)
    ends: dict[TopicPartition, PartitionFound] = {}
    log_starts = _read_offsets(path / LOG_START_FILE, options)
    for partition in partitions:
        row, found = _summarize(path, partition, options)
        complaints += found
        if partition.kind is DirectoryKind.PARTITION:
            log_start = log_starts.get(partition.topic_partition, FIRST_OFFSET)
            row = replace(row, start_offset=max(row.start_offset, log_start))
        yield row
        if partition.kind is DirectoryKind.PARTITION:
            ends[partition.topic_partition] = row
    complaints += _check_checkpoints(path, ends, options)
    for complaint in complaints:
        problems += isinstance(complaint, Problem)
        yield complaint
    yield DirectoryEnd(path, None, problems)


def _top_level_file(path: Path, options: InspectionOptions) -> Iterator[Item]:
    try:
        yield from inspect_file(path, options)
    except OSError as error:
        yield _unreadable(path, error)


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(
        path, None, f"cannot be read: {error.strerror or error}", "check permissions and the disk"
    )


def _stop_remarks(path: Path, files: list[str]) -> Iterator[Item]:
    if META_PROPERTIES_FILE not in files:
        yield Problem(
            path,
            None,
            "there is no meta.properties",
            "if this is a log directory, restore it: no broker starts without it",
        )
    elif CLEAN_STOP_FILE not in files:
        yield Remark(
            path,
            None,
            "no clean-shutdown marker: a broker is using the directory, or it was stopped "
            "uncleanly and the next start recovers every log from its recovery point",
        )


def _summarize(
    path: Path, partition: PartitionDirectory, options: InspectionOptions
) -> tuple[PartitionFound, list[Item]]:
    directory = path / partition.name
    totals = _PartitionTotals(directory)
    found: list[Item] = []
    # Rows are not shown, so a limit on them would only hide problems.
    options = replace(options, rows_max=None, bytes_max=None)
    try:
        for item in _partition_items(directory, options, totals):
            totals.add(item)
            if isinstance(item, Problem):
                found.append(item)
    except OSError as error:
        found.append(_unreadable(directory, error))
        totals.problems += 1
    return totals.row(partition.name, _STATES[partition.kind]), found


def _partition_items(
    path: Path, options: InspectionOptions, totals: "_PartitionTotals"
) -> Iterator[Item]:
    filesystem = options.filesystem
    names = sorted(filesystem.list_directory(path), key=shown_order)
    for name in names:
        if not filesystem.is_directory(path / name):
            yield from _top_level_file(path / name, options)
        elif name == QUARANTINE_DIRECTORY_NAME:
            yield Remark(path / name, None, "segments that a recovery found damaged are kept here")
    yield from totals.check()


@dataclass(slots=True)
class _PartitionTotals:
    """Adds up the files of one partition and checks them against each other."""

    path: Path
    segments: list[tuple[Offset, Offset]] = field(default_factory=list)
    snapshots: list[tuple[Path, Offset]] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    problems: int = 0

    def add(self, item: Item) -> None:
        match item:
            case FileStart():
                self.size_bytes += item.size_bytes
            case FileEnd():
                self._add_file(item, parse_file_name(item.path.name))
            case Problem():
                self.problems += 1
            case _:
                pass

    def _add_file(self, end: FileEnd, name: FileName) -> None:
        if name.leftover or name.base_offset is None:
            return
        if end.kind is FileKind.LOG:
            counts = dict(end.counts)
            self.batches += counts["batches"]
            self.records += counts["records"]
            next_offset = name.base_offset if end.next_offset is None else end.next_offset
            self.segments.append((name.base_offset, next_offset))
        elif end.kind is FileKind.PRODUCER_SNAPSHOT:
            self.snapshots.append((end.path, name.base_offset))

    @property
    def end_offset(self) -> Offset:
        return self.segments[-1][1] if self.segments else FIRST_OFFSET

    def check(self) -> Iterator[Item]:
        for (base, next_offset), (following, _) in zip(
            self.segments, self.segments[1:], strict=False
        ):
            if next_offset > following:
                yield Problem(
                    self.path,
                    None,
                    f"segment {base:020d} ends at offset {next_offset - 1}, "
                    f"but the next one begins at {following}",
                    "consumers would see records twice; copy the partition again from a replica",
                )
        for path, offset in self.snapshots:
            if offset > self.end_offset:
                yield Remark(
                    path, None, f"lies beyond the log's end {self.end_offset}: a start removes it"
                )

    def row(self, name: str, state: str) -> PartitionFound:
        return PartitionFound(
            name=name,
            state=state,
            segments=len(self.segments),
            start_offset=self.segments[0][0] if self.segments else FIRST_OFFSET,
            end_offset=self.end_offset,
            batches=self.batches,
            records=self.records,
            size_bytes=self.size_bytes,
            problems=self.problems,
        )


def _check_checkpoints(
    path: Path, rows: dict[TopicPartition, PartitionFound], options: InspectionOptions
) -> Iterator[Item]:
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
        for partition, offset in sorted(_read_offsets(path / name, options).items()):
            row = rows.get(partition)
            if row is not None and offset > row.end_offset:
                yield _beyond_end(path / name, partition, offset, row)


def _read_offsets(path: Path, options: InspectionOptions) -> dict[TopicPartition, Offset]:
    try:
        return read_offsets(options.filesystem, path)
    except (DamagedFileError, OSError):
        # Already reported by the inspection of the file itself.
        return {}


def _beyond_end(path: Path, partition: TopicPartition, offset: Offset, row: PartitionFound) -> Item:
    if path.name == RECOVERY_POINT_FILE:
        return Problem(
            path,
            None,
            f"{partition} was flushed up to {offset}, but its log ends at {row.end_offset}: "
            f"{offset - row.end_offset} flushed offsets are missing",
            "look for a damaged or missing segment; copy the partition again from a replica",
        )
    return Remark(path, None, f"{partition}: {offset} lies beyond the log's end {row.end_offset}")
