"""The Python twins of `_record_columns.pxi`: records to columns and columns to records."""

import struct
import sys
from array import array

from moldau.protocol.errors import MoldauError
from moldau.protocol.records._records_twin import (
    INT64_MIN,
    _invalid,
    _read_headers,
    _wrap64,
    _write_bytes,
    _write_varint,
    checked_body,
    parse_record,
)
from moldau.protocol.records.record_columns import (
    BinaryColumn,
    DecodedColumns,
    EncodedRows,
    HeaderColumns,
    SourceColumns,
)
from moldau.types import INT32_MAX, INT64_MAX, Buffer

FINISHED = "the columns are finished; begin a new sink"
COLUMN_FULL = "a column of more than 2 GiB does not fit into Arrow's layout; decode fewer batches"

_int32 = struct.Struct("<i")


def _microseconds(milliseconds: int) -> int:
    return min(max(milliseconds * 1000, INT64_MIN), INT64_MAX)


def _little_endian(numbers: "array[int]") -> bytearray:
    if sys.byteorder == "big":
        numbers.byteswap()
    return bytearray(numbers.tobytes())


class _Bits:
    __slots__ = ("count", "nulls", "store")

    def __init__(self) -> None:
        self.store = bytearray()
        self.count = 0
        self.nulls = 0

    def append(self, valid: bool) -> None:
        if not self.count & 7:
            self.store.append(0)
        if valid:
            self.store[-1] |= 1 << (self.count & 7)
        else:
            self.nulls += 1
        self.count += 1

    def finish(self) -> bytearray | None:
        return self.store if self.nulls else None


class _Binaries:
    __slots__ = ("content", "offsets", "validity")

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.content = bytearray()
        self.validity = _Bits()

    def append(self, content: Buffer | None) -> None:
        self.validity.append(content is not None)
        if content is not None:
            if len(content) > INT32_MAX - len(self.content):
                raise MoldauError(COLUMN_FULL)
            self.content += content
        self.offsets.append(len(self.content))

    def finish(self) -> BinaryColumn:
        nulls = self.validity.nulls
        return BinaryColumn(
            _little_endian(self.offsets), self.content, self.validity.finish(), nulls
        )


class ColumnSink:
    """Collects the records of any number of batches into columns. A sink whose append() has raised
    holds half a batch and must be discarded.
    """

    def __init__(self, keys: bool = True, values: bool = True, headers: bool = True) -> None:
        self._key = _Binaries() if keys else None
        self._value = _Binaries() if values else None
        self._headers = headers
        self._names = _Binaries()
        self._contents = _Binaries()
        self._has_headers = _Bits()
        self._lists = array("i", [0])
        self._offsets = array("q")
        self._timestamps = array("q")
        self._types = array("i")
        self._is_finished = False

    def expect(self, rows: int, size_bytes: int) -> None:
        """Makes room for at most `rows` rows of `size_bytes` in total, headers of batches
        included.
        """
        self._check_open()
        if rows < 0 or size_bytes < 0 or rows > size_bytes:
            raise ValueError(f"{rows} rows in {size_bytes} bytes")

    def append(
        self,
        buffer: Buffer,
        bounds: tuple[int, int],
        count: int,
        base: tuple[int, int, int | None],
        offsets: tuple[int, int],
    ) -> int:
        """Appends the records of the uncompressed body in `bounds`. `base` is the batch's base
        offset, base timestamp and append time or None; `offsets` the range of offsets (start
        inclusive, end exclusive). Returns the number of rows added.
        """
        self._check_open()
        base_offset, base_timestamp, append_time = base
        body = checked_body(buffer, bounds, count)
        position, end = 0, len(body)
        before = len(self._offsets)
        for _ in range(count):
            (
                position, time_delta, delta, key_at, key_size, at, size, headers_at, headers, _,
            ) = parse_record(body, position, end)  # fmt: skip
            offset = _wrap64(base_offset + delta)
            if not offsets[0] <= offset < offsets[1]:
                continue
            if self._key is not None:
                self._key.append(None if key_size < 0 else body[key_at : key_at + key_size])
            if self._value is not None:
                self._value.append(None if size < 0 else body[at : at + size])
            if self._headers:
                self._append_headers(body, headers_at, position, headers)
            timestamp = append_time
            if timestamp is None:
                timestamp = _wrap64(base_timestamp + time_delta)
            self._offsets.append(offset)
            self._timestamps.append(_microseconds(timestamp))
            self._types.append(0 if append_time is None else 1)
        if position != end:
            raise _invalid("bytes are left after the last record")
        return len(self._offsets) - before

    def _append_headers(self, body: bytes, position: int, limit: int, count: int) -> None:
        self._has_headers.append(count > 0)
        for name, content in _read_headers(body, position, limit, count):
            self._names.append(name.encode())
            self._contents.append(content)
        self._lists.append(len(self._names.offsets) - 1)

    def _check_open(self) -> None:
        if self._is_finished:
            raise ValueError(FINISHED)

    def finish(self) -> DecodedColumns:
        """Returns the columns; the sink accepts no more records."""
        self._check_open()
        self._is_finished = True
        headers = None
        if self._headers:
            nulls = self._has_headers.nulls
            headers = HeaderColumns(
                _little_endian(self._lists),
                self._has_headers.finish(),
                self._names.finish(),
                self._contents.finish(),
                nulls,
            )
        return DecodedColumns(
            len(self._offsets),
            None if self._key is None else self._key.finish(),
            None if self._value is None else self._value.finish(),
            headers,
            _little_endian(self._offsets),
            _little_endian(self._timestamps),
            _little_endian(self._types),
        )


def _int32_at(buffer: Buffer, index: int) -> int:
    number: int = _int32.unpack_from(buffer, 4 * index)[0]
    return number


def _check_lengths(offsets: Buffer, validity: Buffer | None, start: int, count: int) -> None:
    if start < 0 or count < 0 or len(offsets) // 4 - 1 - start < count:
        raise ValueError("a column has fewer offsets than rows")
    if validity is not None and len(validity) < (start + count + 7) // 8:
        raise ValueError("a column has fewer validity bits than rows")


def _is_null(validity: Buffer | None, index: int) -> bool:
    return validity is not None and not validity[index >> 3] >> (index & 7) & 1


class _Binary:
    def __init__(self, column: BinaryColumn, count: int) -> None:
        _check_lengths(column.offsets, column.validity, column.start, count)
        self.column = column
        self.content = memoryview(column.content)
        self.count = count

    def get(self, row: int) -> memoryview | None:
        index = self.column.start + row
        if _is_null(self.column.validity, index):
            return None
        first = _int32_at(self.column.offsets, index)
        stop = _int32_at(self.column.offsets, index + 1)
        if first < 0 or stop < first or stop > len(self.content):
            raise ValueError("a column's offsets do not fit its bytes")
        return self.content[first:stop]


class _RowHeaders:
    def __init__(self, columns: HeaderColumns, count: int) -> None:
        _check_lengths(columns.offsets, columns.validity, columns.start, count)
        self.columns = columns
        self.names, self.contents = (
            _Binary(column, len(column.offsets) // 4 - 1 - column.start)
            for column in (columns.names, columns.values)
        )

    def write(self, row: int, out: bytearray) -> None:
        index = self.columns.start + row
        first = _int32_at(self.columns.offsets, index)
        stop = _int32_at(self.columns.offsets, index + 1)
        if _is_null(self.columns.validity, index):
            stop = first
        if first < 0 or stop < first or stop > min(self.names.count, self.contents.count):
            raise ValueError("a column's offsets do not fit its rows")
        _write_varint(out, stop - first)
        for index in range(first, stop):
            name = self.names.get(index)
            if name is None:
                raise ValueError("a header has no name")
            _write_bytes(out, name)
            _write_bytes(out, self.contents.get(index))


class _RowEncoder:
    def __init__(self, columns: SourceColumns, default_timestamp: int) -> None:
        count = columns.rows
        self.key = None if columns.key is None else _Binary(columns.key, count)
        self.value = None if columns.value is None else _Binary(columns.value, count)
        self.headers = None if columns.headers is None else _RowHeaders(columns.headers, count)
        self.times = columns.timestamps_ms
        self.times_start = columns.timestamps_start
        self.default_timestamp = default_timestamp
        start = columns.timestamps_start
        if self.times is not None and (start < 0 or len(self.times) // 8 < start + count):
            raise ValueError("a column has fewer timestamps than rows")

    def time(self, row: int) -> int:
        if self.times is None:
            return self.default_timestamp
        at = 8 * (self.times_start + row)
        return int.from_bytes(self.times[at : at + 8], "little", signed=True)

    def encode(self, row: int, delta: int, time_delta: int) -> bytearray:
        record = bytearray(1)
        _write_varint(record, time_delta)
        _write_varint(record, delta)
        _write_bytes(record, None if self.key is None else self.key.get(row))
        _write_bytes(record, None if self.value is None else self.value.get(row))
        if self.headers is None:
            record.append(0)
        else:
            self.headers.write(row, record)
        if len(record) > INT32_MAX:
            raise ValueError("a record is larger than 2 GiB")
        framed = bytearray()
        _write_varint(framed, len(record))
        framed += record
        return framed


def encode_columns(
    columns: SourceColumns,
    first_row: int,
    default_timestamp: int,
    body_bytes_max: int,
    reserved_bytes: int,
) -> EncodedRows:
    """A body of as many rows from `first_row` on as fit into `body_bytes_max`, at least one, after
    `reserved_bytes` zeros. Raises ValueError if the buffers are too short for the sizes they claim.
    """
    rows = _RowEncoder(columns, default_timestamp)
    if not 0 <= first_row < columns.rows:
        raise ValueError(f"row {first_row} of {columns.rows}")
    base = latest = rows.time(first_row)
    body = bytearray(reserved_bytes)
    row = first_row
    while row < columns.rows:
        time = rows.time(row)
        record = rows.encode(row, row - first_row, _wrap64(time - base))
        if len(body) - reserved_bytes + len(record) > body_bytes_max and row > first_row:
            break
        body += record
        latest = max(latest, time)
        row += 1
    return EncodedRows(body, row - first_row, base, latest)
