"""Record batches to Arrow and back, without a Python object per record. The schema is the one of
Spark's Kafka source. pyarrow is an extra: it is imported when a function here is called, and the
broker calls none of them.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.batch_builder import (
    DEFAULT_OPTIONS,
    BatchFacts,
    BatchOptions,
    finish_batch,
)
from moldau.protocol.records.batches import (
    APPEND_TIME_FLAG,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    RecordBatch,
    add_to_sequence,
    iterate_batches,
)
from moldau.protocol.records.control_records import committed_batches
from moldau.protocol.records.record_columns import (
    BinaryColumn,
    DecodedColumns,
    HeaderColumns,
    SourceColumns,
)
from moldau.protocol.records.record_loops import ColumnSink, encode_columns
from moldau.protocol.records.scanned_batch import ATTRIBUTES, RECORD_COUNT, SIZE, ScannedBatch
from moldau.types import NO_TIMESTAMP, OFFSET_MAX, Buffer

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
BATCH_BYTES_DEFAULT = 1 << 20


@frozen(kw_only=True)
class ArrowRead:
    """Selects the rows to decode from fetched bytes, and their columns."""

    topic: str
    partition: int
    columns: tuple[str, ...] = COLUMNS
    start_offset: int = 0
    stop_offset: int = OFFSET_MAX
    # (producer id, first offset) of a read_committed Fetch response; None: read_uncommitted.
    aborted: Sequence[tuple[int, int]] | None = None
    verify_crc: bool = True
    # Per batch; None: 16 times the compressed size, at least 64 MiB.
    decompressed_bytes_max: int | None = None


def imported_pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MoldauError("Arrow needs pyarrow: pip install 'moldau[arrow]'") from error
    return pa


def arrow_schema(columns: Sequence[str] = COLUMNS) -> Any:
    """The `pyarrow.Schema` of these columns, equal to that of Spark's Kafka source in Arrow."""
    pa = imported_pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def decode_to_arrow(chunks: Buffer | Iterable[Buffer], read: ArrowRead) -> Any:
    """One `pyarrow.RecordBatch` of all records of all batches in `chunks`, the bytes of a fetch,
    which may end with a partial batch. Control records are skipped.
    """
    sink = _sink(read)
    for batch in _selected(chunks, read):
        _append(sink, batch, read)
    return _wrap(sink.finish(), read)


def decode_to_arrow_pieces(
    chunks: Buffer | Iterable[Buffer], read: ArrowRead, piece_bytes: int
) -> Iterator[Any]:
    """As decode_to_arrow, in several batches of about `piece_bytes`: data that compresses well may
    expand a thousandfold.
    """
    sink, size_bytes = _sink(read), 0
    for batch in _selected(chunks, read):
        size_bytes += _append(sink, batch, read)
        if size_bytes >= piece_bytes:
            yield _wrap(sink.finish(), read)
            sink, size_bytes = _sink(read), 0
    if size_bytes:
        yield _wrap(sink.finish(), read)


def _selected(chunks: Buffer | Iterable[Buffer], read: ArrowRead) -> Iterator[RecordBatch]:
    pieces = [chunks] if isinstance(chunks, bytes | bytearray | memoryview) else chunks
    batches: Iterator[RecordBatch] = chain.from_iterable(map(iterate_batches, pieces))
    return _visible(_checked(batches) if read.verify_crc else batches, read)


class DecodedBatches(NamedTuple):
    rows: Any
    """A `pyarrow.RecordBatch`."""
    batches: int
    """The number of input batches that are done."""
    size_bytes: int
    """Decompressed size of their records."""


def decode_scanned_to_arrow(
    buffer: Buffer, batches: Sequence[ScannedBatch], read: ArrowRead, bytes_max: int = sys.maxsize
) -> DecodedBatches:
    """As decode_to_arrow, for batches that `scan_batches` found and the reader selected: only
    offsets are filtered, nothing is checked again. Ends after the batch that reaches `bytes_max`:
    data that compresses well may expand a thousandfold.
    """
    sink = _sink(read)
    offsets = read.start_offset, read.stop_offset
    _expect(sink, batches, bytes_max)
    done = size_bytes = 0
    for position, size, base, last, _, latest, flags, *_, records, first in batches:
        if size_bytes >= bytes_max:
            break
        done += 1
        if last < read.start_offset or base >= read.stop_offset:
            continue
        body, bounds = buffer, (position + BATCH_HEADER_SIZE, position + size)
        if flags & COMPRESSION_MASK:
            body, start = RecordBatch(buffer, position).body(read.decompressed_bytes_max)
            bounds = start, len(body)
        append_time = latest if flags & APPEND_TIME_FLAG else None
        sink.append(body, bounds, records, (base, first, append_time), offsets)
        size_bytes += bounds[1] - bounds[0]
    return DecodedBatches(_wrap(sink.finish(), read), done, size_bytes)


def _expect(sink: ColumnSink, batches: Sequence[ScannedBatch], bytes_max: int) -> None:
    records = size_bytes = 0
    for batch in batches:
        if size_bytes >= bytes_max:
            break
        if not batch[ATTRIBUTES] & COMPRESSION_MASK:
            records += batch[RECORD_COUNT]
            size_bytes += batch[SIZE]
    # A record count is untrusted until its records are read.
    sink.expect(min(records, size_bytes), size_bytes)


def _sink(read: ArrowRead) -> ColumnSink:
    return ColumnSink("key" in read.columns, "value" in read.columns, "headers" in read.columns)


def _checked(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Checks all batches before any header is trusted: a flipped bit may make data look like a
    marker, or one marker like another.
    """
    for batch in batches:
        batch.check_crc()
        yield batch


def _visible(batches: Iterable[RecordBatch], read: ArrowRead) -> Iterator[RecordBatch]:
    if read.aborted is not None:
        return committed_batches(batches, read.aborted)
    return (batch for batch in batches if not batch.is_control)


def _append(sink: ColumnSink, batch: RecordBatch, read: ArrowRead) -> int:
    """Returns the size of its records in bytes."""
    if batch.last_offset < read.start_offset or batch.base_offset >= read.stop_offset:
        return 0
    if batch.record_count == 0:
        return 0
    buffer, start = batch.body(read.decompressed_bytes_max)
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_FLAG else None
    sink.append(
        buffer,
        (start, len(buffer)),
        batch.record_count,
        (batch.base_offset, batch.base_timestamp, append_time),
        (read.start_offset, read.stop_offset),
    )
    return len(buffer) - start


def _wrap(decoded: DecodedColumns, read: ArrowRead) -> Any:
    pa = imported_pyarrow()
    schema = arrow_schema(read.columns)
    arrays = [_array(pa, name, schema.field(name).type, decoded, read) for name in read.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(pa: Any, name: str, kind: Any, decoded: DecodedColumns, read: ArrowRead) -> Any:
    rows = decoded.rows
    if name == "topic":
        return pa.repeat(pa.scalar(read.topic, kind), rows)
    if name == "partition":
        return pa.repeat(pa.scalar(read.partition, kind), rows)
    if name == "headers":
        return _header_array(pa, kind, decoded)
    if name in {"key", "value"}:
        column = decoded.key if name == "key" else decoded.value
        assert column is not None
        return _binary_array(pa, kind, rows, column)
    fixed = {
        "offset": decoded.offsets,
        "timestamp": decoded.timestamps_us,
        "timestampType": decoded.timestamp_types,
    }
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(fixed[name])], null_count=0)


def _bits(pa: Any, validity: Buffer | None) -> Any:
    return None if validity is None else pa.py_buffer(validity)


def _binary_array(pa: Any, kind: Any, rows: int, column: BinaryColumn) -> Any:
    buffers = [
        _bits(pa, column.validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.content),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _header_array(pa: Any, kind: Any, decoded: DecodedColumns) -> Any:
    headers = decoded.headers
    assert headers is not None
    count = len(headers.names.offsets) // 4 - 1
    struct = kind.value_type
    children = [
        _binary_array(pa, struct.field(0).type, count, headers.names),
        _binary_array(pa, struct.field(1).type, count, headers.values),
    ]
    elements = pa.Array.from_buffers(struct, count, [None], null_count=0, children=children)
    return pa.Array.from_buffers(
        kind,
        decoded.rows,
        [_bits(pa, headers.validity), pa.py_buffer(headers.offsets)],
        null_count=headers.null_count,
        children=[elements],
    )


def build_from_arrow(
    rows: Any,
    now_ms: int,
    options: BatchOptions = DEFAULT_OPTIONS,
    *,
    batch_bytes_max: int = BATCH_BYTES_DEFAULT,
) -> Iterator[bytearray]:
    """Batches of a `pyarrow.RecordBatch` or `Table` with the column `value` and optionally `key`,
    `headers` and `timestamp` (a row without one gets `now_ms`); other columns are ignored, a caller
    may use them for routing. No batch is larger than `batch_bytes_max` before compression unless a
    single row is. Offsets and sequences continue from batch to batch.
    """
    offset = options.base_offset or 0
    for batch in rows.to_batches() if hasattr(rows, "to_batches") else [rows]:
        columns = source_columns(batch, now_ms)
        row = 0
        while row < columns.rows:
            encoded = encode_columns(
                columns, row, now_ms, batch_bytes_max - BATCH_HEADER_SIZE, BATCH_HEADER_SIZE
            )
            facts = BatchFacts(
                base_offset=offset,
                last_offset_delta=encoded.rows - 1,
                base_timestamp=encoded.base_timestamp,
                max_timestamp=encoded.max_timestamp,
                record_count=encoded.rows,
            )
            yield finish_batch(encoded.body, options, facts)
            row += encoded.rows
            offset += encoded.rows
            if options.base_sequence >= 0:
                following = add_to_sequence(options.base_sequence, encoded.rows)
                options = replace(options, base_sequence=following)


def source_columns(batch: Any, now_ms: int) -> SourceColumns:
    """The buffers of a `pyarrow.RecordBatch`; strings count as their UTF-8 bytes."""
    pa = imported_pyarrow()
    names = set(batch.schema.names)
    if "value" not in names:
        raise MoldauError("the rows have no column named value")
    times = None
    if "timestamp" in names:
        times = _milliseconds(pa, batch.column("timestamp"), now_ms)
    return SourceColumns(
        batch.num_rows,
        _binary_column(pa, "key", batch.column("key")) if "key" in names else None,
        _binary_column(pa, "value", batch.column("value")),
        _header_columns(pa, batch.column("headers")) if "headers" in names else None,
        None if times is None else _bytes_of(times.buffers()[1]),
        0 if times is None else times.offset,
    )


def _bytes_of(buffer: Any) -> Buffer:
    return b"" if buffer is None else memoryview(buffer)


def _milliseconds(pa: Any, column: Any, now_ms: int) -> Any:
    """Converts to int64 milliseconds. Integers count as milliseconds already."""
    if not pa.types.is_timestamp(column.type) and not pa.types.is_integer(column.type):
        raise _wrong_type("timestamp", column, "a timestamp or an integer of milliseconds")
    try:
        if pa.types.is_timestamp(column.type):
            # Finer units lose their fractions; seconds could overflow, and that is an error.
            whole = pa.timestamp("ms", column.type.tz)
            column = column.cast(whole, safe=column.type.unit == "s")
        column = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise MoldauError(f"column timestamp has a time out of range: {error}") from error
    import pyarrow.compute as pc

    earliest = pc.min(column).as_py()
    # Records without a timestamp are read as -1, and must be writable again.
    if earliest is not None and earliest < NO_TIMESTAMP:
        raise MoldauError(f"column timestamp has {earliest}; times count from 0, which is 1970")
    return column.fill_null(now_ms) if column.null_count else column


def _wrong_type(name: str, column: Any, expected: str) -> MoldauError:
    return MoldauError(f"column {name} is {column.type}; it must be {expected}")


def _cast(pa: Any, name: str, column: Any, kind: Any) -> Any:
    if column.type.equals(kind):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise _wrong_type(name, column, str(kind)) from error


def _binary_column(pa: Any, name: str, column: Any) -> BinaryColumn:
    # Strings are used in place; they have the same layout.
    array = column
    if column.type != pa.string():
        try:
            array = _cast(pa, name, column, pa.binary())
        except MoldauError:
            raise _wrong_type(name, column, "binary or text: cast it to a string") from None
    validity, offsets, content = array.buffers()
    return BinaryColumn(
        # An empty array may have no offsets at all.
        _bytes_of(offsets) if len(array) else bytes(4),
        _bytes_of(content),
        None if array.null_count == 0 else memoryview(validity),
        array.null_count,
        array.offset if len(array) else 0,
    )


def _header_columns(pa: Any, column: Any) -> HeaderColumns | None:
    if pa.types.is_null(column.type) or len(column) == 0:
        return None
    struct = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    header_type = pa.list_(pa.field("element", struct))
    array = _cast(pa, "headers", column, header_type)
    elements = array.values
    if elements.null_count:
        raise MoldauError("a header is null; headers are structs of key and value")
    # The rows may be a slice of an array that has such headers elsewhere.
    if elements.field(0).null_count and array.flatten().field(0).null_count:
        raise MoldauError("a header has no name")
    validity, offsets = array.buffers()[:2]
    return HeaderColumns(
        _bytes_of(offsets),
        None if array.null_count == 0 else memoryview(validity),
        # Unlike flatten(), field() does not apply the parent's slice; the list's own is in start.
        _binary_column(pa, "headers", elements.field(0)),
        _binary_column(pa, "headers", elements.field(1)),
        array.null_count,
        array.offset,
    )
