"""Inspects one file: identifies it, runs the reader for its kind, and adds up the totals."""

from collections.abc import Iterator
from pathlib import Path

from moldau.storage.directory.directory import parse_directory_name
from moldau.storage.inspection.indexes import IndexInspection
from moldau.storage.inspection.items import (
    FileEnd,
    FileKind,
    FileStart,
    Item,
    Problem,
    Remark,
)
from moldau.storage.inspection.log import LogInspection
from moldau.storage.inspection.names import FileName, parse_file_name
from moldau.storage.inspection.options import Decoding, InspectionOptions
from moldau.storage.inspection.records import decoding_for_topic
from moldau.storage.inspection.small_files import inspect_small_file
from moldau.storage.inspection.source import InspectedFile
from moldau.types import FIRST_OFFSET, Offset

_INDEXES = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX})
_WITHOUT_CONTENT = frozenset({FileKind.LOCK, FileKind.RESERVE})
_LOGS = frozenset({FileKind.LOG, FileKind.METADATA_SNAPSHOT})
_NAMED_BY_OFFSET = _INDEXES | {FileKind.LOG, FileKind.PRODUCER_SNAPSHOT}


def inspect_file(path: Path, options: InspectionOptions) -> Iterator[Item]:
    """Raises OSError if the file cannot be opened."""
    name = parse_file_name(path.name)
    with InspectedFile(options.filesystem, path, options.on_progress) as file:
        yield FileStart(path, name.kind, file.size_bytes, _facts(name))
        totals = _Totals()
        for item in _content(file, name, options, totals):
            if isinstance(item, Problem):
                totals.problems += 1
            elif not isinstance(item, Remark):
                totals.rows += 1
            yield item
        yield FileEnd(
            path, name.kind, totals.counts(name.kind), totals.next_offset, totals.problems
        )


class _Totals:
    def __init__(self) -> None:
        self.rows = 0
        self.problems = 0
        self.batches = 0
        self.records = 0
        self.next_offset: Offset | None = None

    def counts(self, kind: FileKind) -> tuple[tuple[str, int], ...]:
        if kind in _LOGS:
            return (("batches", self.batches), ("records", self.records))
        return (("entries", self.rows),)


def _facts(name: FileName) -> tuple[tuple[str, int | str], ...]:
    facts: list[tuple[str, int | str]] = []
    if name.kind is FileKind.METADATA_SNAPSHOT and name.base_offset is not None:
        facts += [("end offset", name.base_offset), ("epoch", name.epoch or 0)]
    elif name.kind is FileKind.PRODUCER_SNAPSHOT and name.base_offset is not None:
        facts.append(("end offset", name.base_offset))
    elif name.base_offset is not None:
        facts.append(("base offset", name.base_offset))
    if name.leftover:
        facts.append(("state", name.leftover_meaning))
    return tuple(facts)


def _content(
    file: InspectedFile, name: FileName, options: InspectionOptions, totals: _Totals
) -> Iterator[Item]:
    if name.kind is FileKind.UNKNOWN:
        remark = "not a file that Kafka or Moldau writes; not read"
        yield Remark(file.path, None, remark, is_unread=True)
        return
    if name.kind in _WITHOUT_CONTENT:
        return
    if name.kind in _NAMED_BY_OFFSET and name.base_offset is None:
        yield Problem(
            file.path,
            None,
            "the name does not begin with the segment's base offset (20 digits)",
            "give it its name back; its offsets and entries cannot be checked without it",
        )
        name = FileName(name.kind, name.plain, name.leftover, FIRST_OFFSET)
    if name.kind in _LOGS:
        inspection = LogInspection(file, name, _decoding(file.path, name, options), options)
        yield from inspection.items()
        totals.batches = inspection.totals.batches
        totals.records = inspection.totals.records
        totals.next_offset = inspection.totals.next_offset
    elif name.kind in _INDEXES:
        yield from _index(file, name, options)
    else:
        yield from inspect_small_file(file.path, name, options)


def _index(file: InspectedFile, name: FileName, options: InspectionOptions) -> Iterator[Item]:
    inspection = IndexInspection(file, name, options)
    match name.kind:
        case FileKind.OFFSET_INDEX:
            return inspection.offset_index()
        case FileKind.TIME_INDEX:
            return inspection.time_index()
        case _:
            return inspection.transaction_index()


def _decoding(path: Path, name: FileName, options: InspectionOptions) -> Decoding:
    if options.decoding is not Decoding.AUTO:
        return options.decoding
    if name.kind is FileKind.METADATA_SNAPSHOT:
        return Decoding.METADATA
    directory = parse_directory_name(path.absolute().parent.name)
    return decoding_for_topic(directory.topic_partition.topic if directory else None)
