"""Arrow tables into batches: columns straight to bytes, no Python object per record."""

from collections.abc import Iterator
from typing import Any

from moldau.client.errors import ClientError
from moldau.client.metadata import Topic
from moldau.client.producing.engine import ProducerEngine
from moldau.core.client.batching import Batch, partitions_of_keys
from moldau.protocol.arrow import source_columns
from moldau.protocol.batches import BATCH_HEADER_SIZE
from moldau.protocol.record_columns import SourceColumns
from moldau.protocol.record_loops import encode_columns

BATCH_BYTES = 1_000_000
"""What a broker takes in one batch if nobody told it otherwise: what a request costs beside its
bytes weighs little then."""


def table_batches(
    engine: ProducerEngine, topic: Topic, table: Any, partition: int | None
) -> Iterator[Batch]:
    """Of a `pyarrow.Table` or `RecordBatch` with a column `value` and, if they are there, `key`,
    `headers`, `timestamp` and `partition`.
    """
    now_ms = engine.cluster.clock.wall_ms()
    for chunk in _chunks(table):
        if not chunk.num_rows:
            continue
        for number, rows in _by_partition(engine, topic, chunk, partition):
            yield from _encoded(engine, topic, (number, source_columns(rows, now_ms)), now_ms)


def _chunks(table: Any) -> list[Any]:
    if not hasattr(table, "schema") or not hasattr(table, "num_rows"):
        raise ClientError(
            f"a {type(table).__name__} is no pyarrow.Table; pyarrow.Table.from_pandas, Polars' "
            "to_arrow() and pyarrow.table(dict) make one"
        )
    if "value" not in table.schema.names:
        raise ClientError("the rows have no column named value")
    return list(table.to_batches()) if hasattr(table, "to_batches") else [table]


def _encoded(
    engine: ProducerEngine, topic: Topic, part: tuple[int | None, SourceColumns], now_ms: int
) -> Iterator[Batch]:
    number, columns = part
    most = min(BATCH_BYTES, engine.options.rules.request_bytes_max - 1024) - BATCH_HEADER_SIZE
    row = 0
    while row < columns.rows:
        encoded = encode_columns(columns, row, now_ms, most, BATCH_HEADER_SIZE)
        # Without keys each batch goes to a partition of its own.
        place = engine.next_partition(topic.name) if number is None else number
        facts = (encoded.rows, encoded.base_timestamp, encoded.max_timestamp)
        yield Batch.of_rows(topic.name, place, encoded.body, facts)
        row += encoded.rows


def _by_partition(
    engine: ProducerEngine, topic: Topic, rows: Any, partition: int | None
) -> Iterator[tuple[int | None, Any]]:
    count = len(topic.partitions)
    if partition is not None or count == 1:
        yield partition or 0, rows
        return
    chosen = partition_numbers(rows, topic, hashes_keys=engine.options.hashes_keys)
    if chosen is None and engine.options.is_sticky:
        yield None, rows
        return
    if chosen is None:
        raise ClientError(
            "partitioner.class is asked for single records; give the table a column partition"
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
    """The partition of each row as an array; -1 where neither its column nor a key says one. None:
    nowhere.
    """
    names = rows.schema.names
    hashed = _hashed(rows, len(topic.partitions)) if "key" in names and hashes_keys else None
    if "partition" not in names:
        return hashed
    given = _given(topic, rows.column("partition"))
    if hashed is None:
        return given
    import pyarrow.compute as pc

    return pc.if_else(pc.less(given, 0), hashed, given)


def _given(topic: Topic, column: Any) -> Any:
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
