"""Converts tables and data frames to batches: columns become bytes without a Python object per
record.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from moldau.client.cluster.metadata import Topic
from moldau.client.errors import ClientError, did_you_mean
from moldau.client.producer.engine import ProducerEngine
from moldau.core.producer.batching import Batch, partitions_of_keys
from moldau.protocol.records.arrow import COLUMNS as READ_COLUMNS
from moldau.protocol.records.arrow import imported_pyarrow, source_columns
from moldau.protocol.records.batches import BATCH_HEADER_SIZE
from moldau.protocol.records.record_columns import SourceColumns
from moldau.protocol.records.record_loops import encode_columns

BATCH_BYTES = 1_000_000
"""Just below the default max.message.bytes, so that the fixed cost of a request is small."""

COLUMNS = frozenset({"key", "value", "headers", "timestamp", "partition"})


def table_batches(
    engine: ProducerEngine, topic: Topic, table: Any, partition: int | None
) -> Iterator[Batch]:
    """The batches of a table with a column `value` and, if they exist, `key`, `headers`,
    `timestamp` and `partition`.
    """
    now_ms = engine.cluster.clock.wall_ms()
    for chunk in _chunks(table):
        if not chunk.num_rows:
            continue
        for number, rows in _by_partition(engine, topic, chunk, partition):
            yield from _encoded(engine, topic, (number, source_columns(rows, now_ms)), now_ms)


def _chunks(source: Any) -> list[Any]:
    table = _arrow_table(source)
    names = table.schema.names
    # Other columns are ignored, even with repeated names.
    _refuse_repeated([name for name in names if name in COLUMNS])
    _refuse_misspelt(names)
    if "value" not in names:
        raise ClientError("the rows have no column named value")
    batches = table.to_batches() if hasattr(table, "to_batches") else [table]
    return [_plain(rows) for rows in batches]


def _refuse_misspelt(names: Iterable[str]) -> None:
    """A column with a misspelt name must not be ignored silently, least of all the key."""
    missing = COLUMNS - {*names}
    for name in sorted({*names} - COLUMNS - {*READ_COLUMNS}):
        if hint := did_you_mean(name.lower(), missing):
            raise ClientError(f"the rows have a column '{name}'{hint}")


def _refuse_repeated(names: Iterable[object]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ClientError(f"the rows have {count} columns named {name}")


def _plain(rows: Any) -> Any:
    """The columns of records, without view types, which pyarrow cannot sort by partition."""
    pa = imported_pyarrow()
    names = [name for name in rows.schema.names if name in COLUMNS]
    return pa.RecordBatch.from_arrays(
        [_without_views(pa, rows.column(name)) for name in names], names
    )


def _without_views(pa: Any, column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        values = _without_views(pa, column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).cast(values.type)
    wanted = _type_without_views(pa, column.type)
    return column if column.type.equals(wanted) else column.cast(wanted)


def _type_without_views(pa: Any, kind: Any) -> Any:
    if pa.types.is_large_list(kind):
        return pa.list_(_type_without_views(pa, kind.value_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([(field.name, _type_without_views(pa, field.type)) for field in fields])
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _arrow_table(source: Any) -> Any:
    """An Arrow table from one of Arrow's own types, a data frame of pandas, or an object with
    Arrow's stream interface (Polars, DuckDB, a `RecordBatchReader`). Their packages are not
    imported here.
    """
    if hasattr(source, "num_rows") and hasattr(source, "schema"):
        return source
    is_pandas = type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns")
    # A Series of Polars has it too, but also a dtype.
    is_stream = hasattr(source, "__arrow_c_stream__") and not hasattr(source, "dtype")
    if not is_pandas and not is_stream:
        kind = type(source).__name__
        if hasattr(source, "collect"):
            raise ClientError(f"a {kind} has no rows yet: call .collect() first")
        raise ClientError(
            f"a {kind} is not a table; give a pyarrow table or a pandas or Polars data frame; "
            "pyarrow.table(…) converts a dict"
        )
    pa = imported_pyarrow()
    if is_pandas:
        # Arrow refuses frames with repeated names.
        _refuse_repeated(source.columns)
    try:
        if not is_pandas:
            return pa.table(source)
        # An index with the name of a column is used: frame.set_index("key").
        is_column = any(str(name).lower() in COLUMNS for name in source.index.names)
        return pa.Table.from_pandas(source, preserve_index=is_column)
    except pa.ArrowException as error:
        reason = " ".join(str(argument) for argument in error.args)
        raise ClientError(
            f"the rows of this {type(source).__name__} do not fit: {reason}"
        ) from None


def _encoded(
    engine: ProducerEngine, topic: Topic, part: tuple[int | None, SourceColumns], now_ms: int
) -> Iterator[Batch]:
    number, columns = part
    most = min(BATCH_BYTES, engine.options.rules.request_bytes_max - 1024) - BATCH_HEADER_SIZE
    row = 0
    while row < columns.rows:
        encoded = encode_columns(columns, row, now_ms, most, BATCH_HEADER_SIZE)
        # Without keys a partition is chosen for each batch.
        partition = engine.next_partition(topic.name) if number is None else number
        facts = (encoded.rows, encoded.base_timestamp, encoded.max_timestamp)
        yield Batch.of_rows(topic.name, partition, encoded.body, facts)
        row += encoded.rows


def _by_partition(
    engine: ProducerEngine, topic: Topic, rows: Any, partition: int | None
) -> Iterator[tuple[int | None, Any]]:
    count = len(topic.partitions)
    if partition is not None:
        yield partition, rows
        return
    if count == 1:
        if "partition" in rows.schema.names:
            _partition_column(topic, rows.column("partition"))
        yield 0, rows
        return
    chosen = partition_numbers(rows, topic, hashes_keys=engine.options.hashes_keys)
    if chosen is None and engine.options.is_sticky:
        yield None, rows
        return
    if chosen is None:
        raise ClientError(
            "partitioner.class works on single records; give the table a column partition"
        )
    import pyarrow.compute as pc

    order = pc.array_sort_indices(chosen)
    sorted_rows = rows.take(order)
    ends = pc.value_counts(chosen.take(order))
    start = 0
    for entry in ends:
        number, size = entry["values"].as_py(), entry["counts"].as_py()
        part = sorted_rows.slice(start, size)
        start += size
        is_keyless = number < 0
        yield None if is_keyless else number, part


def partition_numbers(rows: Any, topic: Topic, *, hashes_keys: bool) -> Any:
    """The partition of each row as an array, from its column or the key; -1 for a row with neither.
    None if no row has either.
    """
    names = rows.schema.names
    hashed = _hashed(rows, len(topic.partitions)) if "key" in names and hashes_keys else None
    if "partition" not in names:
        return hashed
    numbers = _partition_column(topic, rows.column("partition"))
    if hashed is None:
        return numbers
    import pyarrow.compute as pc

    return pc.if_else(pc.less(numbers, 0), hashed, numbers)


def _partition_column(topic: Topic, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        found = pc.min_max(column.cast(pa.int32())).as_py()
        chosen = pc.fill_null(column.cast(pa.int32()), -1)
    except pa.ArrowException:
        raise ClientError(f"column partition is {column.type}; it must be int32") from None
    if found["min"] is not None:
        if found["min"] < 0:
            raise ClientError(f"column partition has {found['min']}; partitions count from 0")
        topic.partition(found["max"])
    return chosen


def _hashed(rows: Any, count: int) -> Any:
    """The partition of each row; -1 for one without a key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = source_columns(rows.select(["key", "value"]), 0).key
    assert keys is not None
    found = partitions_of_keys(keys.offsets, keys.content, keys.start, rows.num_rows, count)
    chosen = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(found)])
    if not keys.null_count:
        return chosen
    return pc.if_else(pc.is_valid(rows.column("key")), chosen, pa.scalar(-1, pa.int32()))
