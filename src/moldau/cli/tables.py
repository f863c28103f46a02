"""Findings as tables for a terminal. Rows are printed in pages, so that a file of any size flows by
in bounded memory; the columns keep their widths from page to page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from moldau.cli.rendering import remark_line, shown_path
from moldau.cli.row_fields import compact_json, shown_bytes
from moldau.storage.inspection_items import (
    AbortedTransactionFound,
    BatchFound,
    CheckpointOffsetFound,
    DirectoryEnd,
    DirectoryStart,
    EpochFound,
    FileEnd,
    FileStart,
    Item,
    OffsetIndexEntryFound,
    PartitionFound,
    Problem,
    ProducerFound,
    PropertyFound,
    RecordFound,
    Remark,
    Row,
    TimeIndexEntryFound,
)

_PAGE_ROWS = 100
_EMPTY = Text("-", "dim")
_LONGEST_SHOWN_BYTES = 512

Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    is_number: bool = False
    # Takes the width that the others leave, and is cut with an ellipsis.
    is_wide: bool = False


class Pages:
    """One table, printed a page at a time."""

    def __init__(self, console: Console, columns: Sequence[Column], indent: int = 0) -> None:
        self._console = console
        self._columns = columns
        self._indent = indent
        self._rows: list[list[Cell]] = []
        self._widths = [len(column.title) for column in columns]
        self._is_first = True

    def add(self, cells: list[Cell]) -> None:
        self._rows.append(cells)
        if len(self._rows) >= _PAGE_ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        table = Table(
            box=box.SIMPLE_HEAD if self._is_first else None,
            show_header=self._is_first,
            show_edge=False,
            padding=(0, 1),
            pad_edge=True,
            header_style="bold",
        )
        for index, column in enumerate(self._columns):
            longest = max(len(row[index]) for row in self._rows)
            self._widths[index] = max(self._widths[index], longest)
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                no_wrap=True,
                overflow="ellipsis",
                ratio=1 if column.is_wide else None,
                min_width=None if column.is_wide else self._widths[index],
            )
        for row in self._rows:
            table.add_row(*row)
        self._console.print(table)
        self._rows.clear()
        self._is_first = False


class Tables:
    """Renders to a terminal: a heading for each file, a table for each kind of row."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pages: Pages | None = None
        self._kind: type | None = None
        self._failed = 0

    def show(self, item: Item) -> None:
        match item:
            case FileStart():
                self._start_file(item)
            case DirectoryStart():
                self._heading(item.role, shown_path(item.path), item.facts)
            case FileEnd():
                self._end_file(item)
            case DirectoryEnd():
                self._end_directory(item)
            case Problem():
                self._problem(item)
            case Remark():
                self._flush()
                self._console.print(f"  [yellow]{escape(remark_line(item))}[/]", soft_wrap=True)
            case _:
                self._row(item)

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pages is not None:
            self._pages.flush()
        self._pages = None
        self._kind = None

    def _row(self, row: Row) -> None:
        if self._kind is not type(row):
            self._flush()
            columns, _ = _LAYOUTS[type(row)]
            self._pages = Pages(self._console, columns)
            self._kind = type(row)
        assert self._pages is not None
        self._pages.add(_LAYOUTS[type(row)][1](row))

    def _heading(self, kind: str, name: str, facts: Sequence[tuple[str, int | str]]) -> None:
        self._flush()
        told = "".join(f", {fact_name} {fact}" for fact_name, fact in facts)
        self._console.print()
        self._console.print(f"[bold cyan]{escape(name)}[/] [dim]{kind}{escape(told)}[/]")

    def _start_file(self, start: FileStart) -> None:
        facts = [*start.facts, ("size", shown_size(start.size_bytes))]
        self._heading(start.kind.value, shown_path(start.path), facts)

    def _end_file(self, end: FileEnd) -> None:
        self._flush()
        told = ", ".join(f"{count} {name}" for name, count in end.counts)
        if end.next_offset is not None:
            told += f", next offset {end.next_offset}"
        self._console.print(f"  [dim]{told}[/]")

    def _end_directory(self, end: DirectoryEnd) -> None:
        self._flush()
        if end.total is not None:
            self._console.print()
            self._row(end.total)
            self._flush()

    def _problem(self, problem: Problem) -> None:
        self._flush()
        place = "" if problem.position is None else f": position {problem.position}"
        self._console.print(
            f"[bold red]problem:[/] {escape(shown_path(problem.path))}{place}: "
            f"[red]{escape(problem.what)}[/]; to do: {escape(problem.remedy)}",
            soft_wrap=True,
        )


def shown_time(timestamp_ms: int) -> str:
    """UTC, as a log would print it; a number that is no time stays a number."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def shown_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _optional(number: int | None) -> Cell:
    return _EMPTY if number is None or number < 0 else str(number)


def _batch(row: BatchFound) -> list[Cell]:
    producer: Cell = _EMPTY
    if row.producer_id >= 0:
        producer = f"{row.producer_id}/{row.producer_epoch}"
        if row.base_sequence >= 0:
            producer += f" #{_range(row.base_sequence, row.last_sequence)}"
    marks = Text()
    if row.is_transactional:
        marks.append("txn ", "magenta")
    if row.is_control:
        marks.append("control ", "blue")
    if row.timestamp_type == "LogAppendTime":
        marks.append("append-time ")
    if row.delete_horizon_ms is not None:
        marks.append("tombstones ")
    if not row.crc_is_valid:
        marks.append("BAD CRC", "bold red")
    marks.rstrip()
    return [
        str(row.position),
        str(row.size_bytes),
        _range(row.base_offset, row.last_offset),
        str(row.record_count),
        _optional(row.partition_leader_epoch),
        shown_time(row.max_timestamp),
        row.compression,
        producer,
        marks,
    ]


def _record(row: RecordFound) -> list[Cell]:
    headers = " ".join(f"{name}={_bytes(value)}" for name, value in row.headers)
    if row.is_control:
        name = row.decoded_key.name if row.decoded_key else "unreadable"
        value = compact_json(row.decoded_value.fields) if row.decoded_value else ""
        return [str(row.offset), shown_time(row.timestamp), Text(name, "blue"), value, headers]
    key: Cell = _bytes(row.key)
    content: Cell = _bytes(row.value)
    if row.decoded_key is not None:
        key = f"{row.decoded_key.name.removesuffix('Key')} {_pairs(row.decoded_key.fields)}"
        content = Text("deleted", "dim") if row.value is None else content
    if row.decoded_value is not None:
        pairs = _pairs(row.decoded_value.fields)
        content = pairs if row.decoded_key else f"{row.decoded_value.name} {pairs}"
    return [str(row.offset), shown_time(row.timestamp), key, content, headers]


def _bytes(content: bytes | None) -> Cell:
    if content is None:
        return Text("null", "dim")
    return shown_bytes(content[:_LONGEST_SHOWN_BYTES])


def _pairs(fields: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={compact_json(value) if isinstance(value, dict | list) else value}"
        for name, value in fields.items()
    )


def _producer(row: ProducerFound) -> list[Cell]:
    has_batch = row.last_offset >= 0
    return [
        str(row.producer_id),
        str(row.producer_epoch),
        f"{_range(row.first_sequence, row.last_sequence)}" if has_batch else _EMPTY,
        _optional(row.last_offset),
        shown_time(row.last_timestamp),
        _optional(row.coordinator_epoch),
        _optional(row.current_transaction_first_offset),
    ]


def _partition(row: PartitionFound) -> list[Cell]:
    return [
        row.name,
        str(row.segments),
        str(row.start_offset),
        str(row.end_offset),
        str(row.batches),
        str(row.records),
        shown_size(row.size_bytes),
        Text(str(row.problems), "bold red" if row.problems else "green"),
        row.state,
    ]


def _columns(*titles: str, numbers: str = "", wide: str = "") -> tuple[Column, ...]:
    are_numbers, are_wide = numbers.split(), wide.split()
    return tuple(
        Column(title, is_number=title in are_numbers, is_wide=title in are_wide) for title in titles
    )


_NUMBERS = "position size offset offsets records segments start end batches problems epoch"
_LAYOUTS: dict[type, tuple[tuple[Column, ...], Callable[[Any], list[Cell]]]] = {
    BatchFound: (
        _columns(
            *("position", "size", "offsets", "records", "epoch", "largest timestamp", "codec"),
            *("producer", ""),
            numbers=_NUMBERS,
        ),
        _batch,
    ),
    RecordFound: (
        _columns(
            "offset", "timestamp", "key", "value", "headers", numbers=_NUMBERS, wide="key value"
        ),
        _record,
    ),
    OffsetIndexEntryFound: (
        _columns("offset", "position", numbers=_NUMBERS),
        lambda row: [str(row.offset), str(row.position)],
    ),
    TimeIndexEntryFound: (
        _columns("timestamp", "offset", numbers=_NUMBERS),
        lambda row: [shown_time(row.timestamp), str(row.offset)],
    ),
    AbortedTransactionFound: (
        _columns("producer", "offsets", "last stable offset", numbers=_NUMBERS),
        lambda row: [
            str(row.producer_id),
            _range(row.first_offset, row.last_offset),
            str(row.last_stable_offset),
        ],
    ),
    ProducerFound: (
        _columns(
            *("producer", "epoch", "sequences", "last offset", "last timestamp"),
            *("coordinator epoch", "open transaction from"),
            numbers=_NUMBERS,
        ),
        _producer,
    ),
    EpochFound: (
        _columns("epoch", "start offset", numbers="epoch"),
        lambda row: [str(row.epoch), str(row.start_offset)],
    ),
    CheckpointOffsetFound: (
        _columns("partition", "offset", numbers=_NUMBERS),
        lambda row: [f"{row.topic}-{row.partition}", str(row.offset)],
    ),
    PropertyFound: (
        _columns("name", "value"),
        lambda row: [row.name, str(row.value)],
    ),
    PartitionFound: (
        _columns(
            *("partition", "segments", "start", "end", "batches", "records", "size", "problems"),
            "",
            numbers=_NUMBERS,
        ),
        _partition,
    ),
}
