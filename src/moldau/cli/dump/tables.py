"""Findings as tables for a terminal. Rows are printed in pages, so that a file of any size needs
bounded memory; the columns keep their widths from page to page.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from moldau.cli.dump.plain import remark_line, shown_path
from moldau.cli.dump.row_fields import shown_bytes
from moldau.cli.shared.escaping import json_text, printable
from moldau.frozen import frozen
from moldau.storage.inspection.items import (
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
# The gap between columns, and the least widths on a narrow terminal.
_GAP = 2
_WIDE_MIN = 12
_NAME_MIN = 40
_LONGEST_SHOWN_BYTES = 512

Cell = str | Text


@frozen
class Column:
    title: str
    is_number: bool = False
    # Shrinks when the terminal is narrow, and is then cut with an ellipsis.
    is_wide: bool = False
    width_min: int = _WIDE_MIN
    # Left out when the terminal is narrow; the highest first.
    spare_rank: int = 0


class Pages:
    """One table, printed a page at a time."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        self._console = console
        self._columns = columns
        self._rows: list[list[Cell]] = []
        self._widths = [len(column.title) for column in columns]
        self._shown: list[int] = []

    def add(self, cells: list[Cell]) -> None:
        self._rows.append(cells)
        if len(self._rows) >= _PAGE_ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        for index in range(len(self._columns)):
            longest = max(_width(row[index]) for row in self._rows)
            self._widths[index] = max(self._widths[index], longest)
        is_first = not self._shown
        if is_first:
            self._shown = self._choose_columns()
        table = Table(box=None, show_header=is_first, padding=(0, 1), header_style="bold underline")
        widths = self._fitted_widths()
        for index in self._shown:
            column = self._columns[index]
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=widths[index],
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in self._shown))
        self._console.print(table)
        self._rows.clear()

    def _total_width(self, shown: Sequence[int]) -> int:
        wide = sum(self._least_width(index) for index in shown if self._columns[index].is_wide)
        fixed = sum(self._widths[index] for index in shown if not self._columns[index].is_wide)
        return wide + fixed + _GAP * len(shown)

    def _least_width(self, index: int) -> int:
        return min(self._widths[index], self._columns[index].width_min)

    def _choose_columns(self) -> list[int]:
        """The columns that fit; the other formats have all of them."""
        shown = [
            index
            for index, column in enumerate(self._columns)
            if column.title or self._widths[index] > 0
        ]
        spare = sorted(
            (index for index in shown if self._columns[index].spare_rank),
            key=lambda index: -self._columns[index].spare_rank,
        )
        for index in spare:
            if self._total_width(shown) > self._console.width:
                shown.remove(index)
        return shown

    def _fitted_widths(self) -> list[int]:
        widths = list(self._widths)
        wide = [index for index in self._shown if self._columns[index].is_wide]
        fixed = sum(widths[index] for index in self._shown if index not in wide)
        left = self._console.width - fixed - _GAP * len(self._shown)
        # The narrow ones first, so that they leave their share to the others.
        for count, index in enumerate(sorted(wide, key=lambda index: widths[index])):
            share = max(self._least_width(index), left // (len(wide) - count))
            widths[index] = min(widths[index], share)
            left -= widths[index]
        return widths


def _width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


class Tables:
    """Renders to a terminal: a heading for each file, a table for each kind of row."""

    def __init__(self, console: Console, *, records: bool = False) -> None:
        self._console = console
        # If records are shown, a batch is a line between their rows instead of a row of its own.
        self._records = records
        self._pages: Pages | None = None
        self._kind: type | None = None

    def show(self, item: Item) -> None:
        match item:
            case FileStart():
                facts = [*item.facts, ("size", shown_size(item.size_bytes))]
                self._heading(item.kind.value, shown_path(item.path), facts)
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
            case BatchFound() if self._records:
                self._flush()
                self._console.print(_batch_line(item))
            case RecordFound() if item.decoded_key or item.decoded_value:
                self._flush()
                self._console.print(_decoded_record(item))
            case _:
                self._row(item)

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pages is not None:
            self._pages.flush()

    def _end_table(self) -> None:
        self._flush()
        self._pages = None
        self._kind = None

    def _row(self, row: Row) -> None:
        if self._pages is None or self._kind is not type(row):
            self._end_table()
            self._pages = Pages(self._console, _LAYOUTS[type(row)][0])
            self._kind = type(row)
        self._pages.add(_LAYOUTS[type(row)][1](row))

    def _heading(self, kind: str, name: str, facts: Sequence[tuple[str, int | str]]) -> None:
        self._end_table()
        facts_text = "".join(f", {fact_name} {fact}" for fact_name, fact in facts)
        self._console.print()
        self._console.print(
            f"[bold cyan]{escape(name)}[/] [dim]{kind}{escape(facts_text)}[/]", soft_wrap=True
        )

    def _end_file(self, end: FileEnd) -> None:
        self._end_table()
        counts = ", ".join(_counted(count, name) for name, count in end.counts)
        if end.next_offset is not None:
            counts += f", next offset {end.next_offset}"
        self._console.print(f"  [dim]{counts}[/]")

    def _end_directory(self, end: DirectoryEnd) -> None:
        self._end_table()
        if end.total is not None:
            self._console.print()
            self._row(end.total)
            self._end_table()

    def _problem(self, problem: Problem) -> None:
        self._flush()
        position = "" if problem.position is None else f": position {problem.position}"
        self._console.print(
            f"[bold red]problem:[/] {escape(shown_path(problem.path))}{position}: "
            f"[red]{escape(problem.what)}[/]; to do: {escape(problem.remedy)}",
            soft_wrap=True,
        )


def _counted(count: int, plural: str) -> str:
    singulars = {"batches": "batch", "entries": "entry", "records": "record"}
    return f"{count} {singulars.get(plural, plural) if count == 1 else plural}"


def shown_time(timestamp_ms: int) -> str:
    """In UTC, as a log would print it; a number outside the range of times stays a number."""
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


def _producer_text(row: BatchFound) -> str:
    if row.producer_id < 0:
        return ""
    text = f"{row.producer_id}/{row.producer_epoch}"
    if row.base_sequence >= 0:
        text += f" #{_range(row.base_sequence, row.last_sequence)}"
    return text


def _marks(row: BatchFound) -> Text:
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
    return marks


def _batch(row: BatchFound) -> list[Cell]:
    return [
        str(row.position),
        str(row.size_bytes),
        _range(row.base_offset, row.last_offset),
        str(row.record_count),
        _optional(row.partition_leader_epoch),
        shown_time(row.max_timestamp),
        row.compression,
        _producer_text(row) or _EMPTY,
        _marks(row),
    ]


def _batch_line(row: BatchFound) -> Text:
    line = Text(" batch", "bold")
    line.append(
        f" at {row.position}, {shown_size(row.size_bytes)}, offsets "
        f"{_range(row.base_offset, row.last_offset)}, "
        f"{_counted(row.record_count, 'records')}, {row.compression}, "
        f"epoch {row.partition_leader_epoch}",
        "dim",
    )
    if row.producer_id >= 0:
        line.append(f", producer {_producer_text(row)}", "dim")
    marks = _marks(row)
    return line + Text(" ") + marks if marks else line


def _record(row: RecordFound) -> list[Cell]:
    headers = " ".join(f"{printable(name)}={_bytes(value)}" for name, value in row.headers)
    return [
        str(row.offset),
        shown_time(row.timestamp),
        _bytes(row.key),
        _bytes(row.value),
        headers,
    ]


def _decoded_record(row: RecordFound) -> Table:
    """Never cut: the stored fields are what the user is looking for."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", min_width=7, no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    content = Text()
    key, value = row.decoded_key, row.decoded_value
    if key is not None:
        content.append(key.name.removesuffix("Key"), "blue")
        if key.fields:
            content.append(f" {_pairs(key.fields)}")
    elif value is not None:
        content.append(value.name, "blue")
    if value is not None:
        content.append(f" {_pairs(value.fields)}", "dim" if key and not row.is_control else "")
    elif row.value is None:
        content.append(" deleted", "yellow")
    grid.add_row(str(row.offset), shown_time(row.timestamp), content)
    return grid


def _bytes(content: bytes | None) -> Cell:
    if content is None:
        return Text("null", "dim")
    return shown_bytes(content[:_LONGEST_SHOWN_BYTES])


def _pairs(fields: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={printable(value) if isinstance(value, str) else json_text(value)}"
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
    name = Text(row.name)
    if row.state:
        # The full name of such a directory is mostly a random number.
        name = Text(row.name.rpartition(".")[0] or row.name)
        name.append(f" {row.state}", "yellow")
    return [
        name,
        str(row.segments),
        str(row.start_offset),
        str(row.end_offset),
        str(row.batches),
        str(row.records),
        shown_size(row.size_bytes),
        Text(str(row.problems), "bold red" if row.problems else "green"),
    ]


_NUMBERS = frozenset(
    {"position", "size", "offset", "offsets", "records", "segments", "start", "end", "batches"}
    | {"problems", "epoch", "start offset", "last offset", "last stable offset"}
)


def _columns(*titles: str, wide: str = "", spare: str = "") -> tuple[Column, ...]:
    """`spare` names columns in the order in which they are kept."""
    ranks = {title: rank for rank, title in enumerate(spare.split(", "), start=1)}
    return tuple(
        Column(
            title,
            is_number=title in _NUMBERS,
            is_wide=title in wide.split(),
            width_min=_NAME_MIN if title == "partition" else _WIDE_MIN,
            spare_rank=ranks.get(title, 0) if title else 0,
        )
        for title in titles
    )


_LAYOUTS: dict[type, tuple[tuple[Column, ...], Callable[[Any], list[Cell]]]] = {
    BatchFound: (
        _columns(
            *("position", "size", "offsets", "records", "epoch", "largest timestamp", "codec"),
            *("producer", ""),
            spare="size, largest timestamp, epoch",
        ),
        _batch,
    ),
    RecordFound: (
        _columns(
            *("offset", "timestamp", "key", "value", "headers"),
            wide="key value headers",
            spare="timestamp",
        ),
        _record,
    ),
    OffsetIndexEntryFound: (
        _columns("offset", "position"),
        lambda row: [str(row.offset), str(row.position)],
    ),
    TimeIndexEntryFound: (
        _columns("timestamp", "offset"),
        lambda row: [shown_time(row.timestamp), str(row.offset)],
    ),
    AbortedTransactionFound: (
        _columns("producer", "offsets", "last stable offset"),
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
            spare="last timestamp, coordinator epoch",
        ),
        _producer,
    ),
    EpochFound: (
        _columns("epoch", "start offset"),
        lambda row: [str(row.epoch), str(row.start_offset)],
    ),
    CheckpointOffsetFound: (
        _columns("partition", "offset"),
        lambda row: [f"{row.topic}-{row.partition}", str(row.offset)],
    ),
    PropertyFound: (
        _columns("name", "value", wide="value"),
        lambda row: [printable(row.name), printable(str(row.value))],
    ),
    PartitionFound: (
        _columns(
            *("partition", "segments", "start", "end", "batches", "records", "size", "problems"),
            wide="partition",
            spare="size, records, segments, batches",
        ),
        _partition,
    ),
}
