"""Records as columns of plain buffers in Arrow's layout (little-endian, validity bits from the low
end), without Arrow: the record loops fill and read them, arrow.py wraps them.
"""

from typing import NamedTuple

from moldau.types import Buffer


class BinaryColumn(NamedTuple):
    offsets: Buffer
    """int32, one more than the number of elements."""
    content: Buffer
    validity: Buffer | None
    """One bit per element; None: no element is null."""
    null_count: int = 0
    start: int = 0
    """Index of the first element in use: a slice shares its parent's buffers."""


class HeaderColumns(NamedTuple):
    offsets: Buffer
    """int32: the range of names and values of each row."""
    validity: Buffer | None
    names: BinaryColumn
    values: BinaryColumn
    null_count: int = 0
    start: int = 0


class DecodedColumns(NamedTuple):
    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeaderColumns | None
    """Null for a record without headers, as in Spark's own Kafka source."""
    offsets: Buffer
    """int64"""
    timestamps_us: Buffer
    """int64; times outside its range are clamped."""
    timestamp_types: Buffer
    """int32"""


class SourceColumns(NamedTuple):
    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeaderColumns | None = None
    timestamps_ms: Buffer | None = None
    """int64; None: every record gets the default time."""
    timestamps_start: int = 0


class EncodedRows(NamedTuple):
    body: bytearray
    rows: int
    base_timestamp: int
    max_timestamp: int
