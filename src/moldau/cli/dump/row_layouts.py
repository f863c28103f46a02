"""The columns of each kind of row in a terminal, and the texts of its cells."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from moldau.cli.dump.pages import WIDE_MIN, Cell, Column
from moldau.cli.dump.row_fields import shown_bytes
from moldau.cli.shared.escaping import json_text, printable
from moldau.storage.inspection.items import (
    AbortedTransactionFound,
    BatchFound,
    CheckpointOffsetFound,
    EpochFound,
    OffsetIndexEntryFound,
    PartitionFound,
    ProducerFound,
    PropertyFound,
    RecordFound,
    TimeIndexEntryFound,
)

_EMPTY = Text("-", "dim")
_NAME_MIN = 40
_LONGEST_SHOWN_BYTES = 512


class Layout(NamedTuple):
    columns: Sequence[Column]
    cells: Callable[[Any], list[Cell]]


def counted(count: int, plural: str) -> str:
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


def batch_line(row: BatchFound) -> Text:
    line = Text(" batch", "bold")
    line.append(
        f" at {row.position}, {shown_size(row.size_bytes)}, offsets "
        f"{_range(row.base_offset, row.last_offset)}, "
        f"{counted(row.record_count, 'records')}, {row.compression}, "
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


def decoded_record(row: RecordFound) -> Table:
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
            width_min=_NAME_MIN if title == "partition" else WIDE_MIN,
            spare_rank=ranks.get(title, 0) if title else 0,
        )
        for title in titles
    )


LAYOUTS: dict[type, Layout] = {
    BatchFound: Layout(
        _columns(
            *("position", "size", "offsets", "records", "epoch", "largest timestamp", "codec"),
            *("producer", ""),
            spare="size, largest timestamp, epoch",
        ),
        _batch,
    ),
    RecordFound: Layout(
        _columns(
            *("offset", "timestamp", "key", "value", "headers"),
            wide="key value headers",
            spare="timestamp",
        ),
        _record,
    ),
    OffsetIndexEntryFound: Layout(
        _columns("offset", "position"),
        lambda row: [str(row.offset), str(row.position)],
    ),
    TimeIndexEntryFound: Layout(
        _columns("timestamp", "offset"),
        lambda row: [shown_time(row.timestamp), str(row.offset)],
    ),
    AbortedTransactionFound: Layout(
        _columns("producer", "offsets", "last stable offset"),
        lambda row: [
            str(row.producer_id),
            _range(row.first_offset, row.last_offset),
            str(row.last_stable_offset),
        ],
    ),
    ProducerFound: Layout(
        _columns(
            *("producer", "epoch", "sequences", "last offset", "last timestamp"),
            *("coordinator epoch", "open transaction from"),
            spare="last timestamp, coordinator epoch",
        ),
        _producer,
    ),
    EpochFound: Layout(
        _columns("epoch", "start offset"),
        lambda row: [str(row.epoch), str(row.start_offset)],
    ),
    CheckpointOffsetFound: Layout(
        _columns("partition", "offset"),
        lambda row: [f"{row.topic}-{row.partition}", str(row.offset)],
    ),
    PropertyFound: Layout(
        _columns("name", "value", wide="value"),
        lambda row: [printable(row.name), printable(str(row.value))],
    ),
    PartitionFound: Layout(
        _columns(
            *("partition", "segments", "start", "end", "batches", "records", "size", "problems"),
            wide="partition",
            spare="size, records, segments, batches",
        ),
        _partition,
    ),
}
