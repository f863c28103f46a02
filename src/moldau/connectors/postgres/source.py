"""Tables of PostgreSQL as a Spark source, for streams and batches: read continuously by a column
that grows. A batch is all rows between two positions, which the checkpoint holds before the batch
is read.
"""

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moldau.connectors.postgres.server import (
    PATIENCE_S,
    PostgresError,
    columns_of,
    connected,
    no_such_table,
    unique_keys_of,
)
from moldau.connectors.postgres.values import arrow_batch, json_columns, table_columns
from moldau.core.connectors.postgres_sql import (
    BAD_REASON,
    BAD_ROW,
    Cursor,
    check_lag,
    quoted,
    quoted_table,
    read_position,
    spark_kind_of,
    write_position,
)
from moldau.core.pipelines.graph import OnError, Postgres
from moldau.core.spark.errors import suggestion
from moldau.frozen import frozen

Position = tuple[str, ...] | None
FORMAT = "moldau_postgres"
_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 50_000
_IDLE_S = 0.5
# One task reads a smaller range.
_SPLIT_ROWS = 10_000


@frozen(kw_only=True)
class TableRead:
    """Options of a read: the table, its columns for ordering, and limits."""

    url: str
    table: str
    by: str
    key: tuple[str, ...] = ()
    start: str = "earliest"
    lag_ms: int = 0
    rows_max: int | None = None
    tasks: int = 1
    reports_bad_rows: bool = False
    """Rows that do not fit the schema are reported in two columns; otherwise they are an error."""

    @property
    def title(self) -> str:
        return f"table {self.table}"


def options_of(source: Postgres, start: str | None = None) -> dict[str, str]:
    """Options for `PostgresSource`. The url has no password."""
    assert source.by is not None
    table_read = {
        "url": source.url,
        "table": source.name,
        "by": source.by,
        "key": list(source.key),
        "start": source.start if start is None else start,
        "lag_ms": source.lag_ms,
        "rows_max": source.max_rows_per_trigger,
        "tasks": source.tasks,
        "reports_bad_rows": source.on_error is not OnError.FAIL,
    }
    return {"read": json.dumps(table_read)}


def table_read_of(options: Any) -> TableRead:
    fields = json.loads(options["read"])
    return TableRead(**fields | {"key": tuple(fields["key"])})


def with_bad_rows(schema: str) -> str:
    return f"{schema}, {BAD_ROW} STRING, {BAD_REASON} STRING"


class PostgresSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        read = table_read_of(self.options)
        with connected(read.url, read.title, 0.0) as connection:
            columns = columns_of(connection, read.table)
            if not columns:
                raise no_such_table(connection, read.table)
        kinds = ", ".join(f"`{column.name}` {spark_kind_of(column.kind)}" for column in columns)
        return with_bad_rows(kinds) if read.reports_bad_rows else kinds

    def reader(self, schema: StructType) -> DataSourceReader:
        return PostgresReader(table_read_of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return PostgresStreamReader(table_read_of(self.options), schema)


class Range(InputPartition):
    """The rows that one task reads: after `start` up to `end` and, with `cut`, between two values
    of the first column.
    """

    def __init__(self, cursor: Cursor, start: Position, end: Position, cut: Any = None) -> None:
        super().__init__(None)
        self.cursor = cursor
        self.start = start
        self.end = end
        self.cut: tuple[str | None, str | None] = cut or (None, None)


def cursor_of(connection: Any, read: TableRead) -> Cursor:
    """The order in which the table is read. Raises MoldauError if that is impossible."""
    kinds = dict(columns_of(connection, read.table))
    if not kinds:
        raise no_such_table(connection, read.table)
    unique = unique_keys_of(connection, read.table, read.by)
    key = read.key
    if not key and (read.by,) not in unique:
        if not unique:
            raise PostgresError(
                f"{read.title}: rows with equal {read.by} cannot be distinguished; name a key"
            )
        key = unique[0]
    columns = (read.by, *(name for name in key if name != read.by))
    for name in columns:
        if name not in kinds:
            raise PostgresError(
                f"{read.title} has no column '{name}'{suggestion(name, kinds)}; it has "
                f"{', '.join(kinds)}"
            )
    cursor = Cursor(
        table=read.table,
        columns=columns,
        kinds=tuple(kinds[name] for name in columns),
        lag_ms=read.lag_ms,
    )
    check_lag(cursor)
    return cursor


def first_position(read: TableRead, patience_s: float = PATIENCE_S) -> Position:
    """The position to start from. Raises MoldauError."""
    if read.start.startswith("{"):
        return read_position(read.start)
    with connected(read.url, read.title, patience_s) as connection:
        cursor = cursor_of(connection, read)
        if read.start == "earliest":
            return None
        if read.start == "latest":
            return _last(connection, cursor, None, None)
        # The server checks whether it is a value of the column.
        row = connection.execute(f"SELECT %s::{cursor.kinds[0]}::text", [read.start]).fetchone()
        return (str(row[0]),)


def _last(connection: Any, cursor: Cursor, start: Position, rows_max: int | None) -> Position:
    row = connection.execute(*cursor.last_of(start, rows_max)).fetchone()
    if row is None and rows_max is not None:
        return _last(connection, cursor, start, None)
    return None if row is None else tuple(row)


def ranges_of(
    connection: Any, cursor: Cursor, start: Position, end: Position, tasks: int
) -> list[InputPartition]:
    """A range for each task; a single one for few rows."""
    whole: list[InputPartition] = [Range(cursor, start, end)]
    if tasks <= 1 or not cursor.is_even or end is None:
        return whole
    where, values = cursor.between(start, end)
    rows = f"SELECT 1 FROM {quoted_table(cursor.table)} WHERE {where} LIMIT {_SPLIT_ROWS}"
    (count,) = connection.execute(f"SELECT count(*) FROM ({rows}) AS matching", values).fetchone()
    if count < _SPLIT_ROWS:
        return whole
    cuts = connection.execute(*cursor.cuts(start, end, tasks)).fetchone()
    ends = [None, *dict.fromkeys(cuts), None]
    return [Range(cursor, start, end, cut) for cut in pairwise(ends)]


def read_range(read: TableRead, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """Arrow batches of bounded size."""
    assert isinstance(partition, Range)
    position = partition.cursor
    where, values = position.between(partition.start, partition.end)
    low, high = partition.cut
    for sign, value in ((">", low), ("<=", high)):
        if value is not None:
            where += f" AND {quoted(position.columns[0])} {sign} %s::{position.kinds[0]}"
            values.append(value)
    nested = json_columns(schema)
    columns = ", ".join(
        f"to_jsonb(t.{quoted(name)})::text" if name in nested else f"t.{quoted(name)}::text"
        for name in table_columns(schema)
    )
    # Ordered by the columns themselves, not by their texts.
    order = ", ".join(f"t.{quoted(name)}" for name in position.columns)
    table = quoted_table(read.table)
    statement = f"COPY (SELECT {columns} FROM {table} AS t WHERE {where} ORDER BY {order})"
    lines: list[bytes] = []
    size = 0
    with (
        connected(read.url, read.title) as connection,
        connection.cursor() as cursor,
        cursor.copy(f"{statement} TO STDOUT (FORMAT csv)", values) as copy,
    ):
        # The server sends a row at a time.
        for line in copy:
            lines.append(bytes(line))
            size += len(line)
            if size >= _BLOCK_BYTES or len(lines) >= _BLOCK_ROWS:
                yield arrow_batch(b"".join(lines), schema, read.title)
                lines, size = [], 0
    if lines:
        yield arrow_batch(b"".join(lines), schema, read.title)


class PostgresReader(DataSourceReader):
    """Reads all rows that exist now."""

    def __init__(self, read: TableRead, schema: StructType) -> None:
        self._read = read
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        read = self._read
        start = first_position(read, 0.0)
        with connected(read.url, read.title) as connection:
            cursor = cursor_of(connection, read)
            end = _last(connection, cursor, start, None) or start
            return ranges_of(connection, cursor, start, end, read.tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._read, self._schema, partition)


class PostgresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process for the whole life of a query."""

    def __init__(self, read: TableRead, schema: StructType) -> None:
        self._read = read
        self._schema = schema
        self._target: tuple[Position] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return write_position(first_position(self._read))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._read.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        read = self._read
        with connected(read.url, read.title) as connection:
            self._target = (_last(connection, cursor_of(connection, read), None, None),)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        position = read_position(start)
        end = self._end(position, limit)
        if end == position and self._target is None:
            # Otherwise Spark would call again at once, ninety times a second.
            threading.Event().wait(_IDLE_S)
            end = self._end(position, limit)
        return write_position(end)

    def _end(self, position: Position, limit: ReadLimit) -> Position:
        read = self._read
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with connected(read.url, read.title) as connection:
            cursor = cursor_of(connection, read)
            if self._target is None:
                return _last(connection, cursor, position, rows_max) or position
            (target,) = self._target
            if target is None:
                return position
            return self._up_to(connection, cursor, position, target, rows_max)

    def _up_to(
        self, connection: Any, cursor: Cursor, position: Position, target: Any, rows_max: int | None
    ) -> Position:
        """The end of the next batch, at most `target`: later rows are left to the next run."""
        where, values = cursor.between(position, target)
        row = connection.execute(
            f"SELECT 1 FROM {quoted_table(cursor.table)} WHERE {where} LIMIT 1", values
        ).fetchone()
        if row is None:
            return position
        if rows_max is None:
            return tuple(target)
        end = _last(connection, cursor, position, rows_max)
        assert end is not None
        casts = ", ".join(f"%s::{kind}" for kind in cursor.kinds)
        (is_after,) = connection.execute(
            f"SELECT ({casts}) > ({casts})", [*end, *target]
        ).fetchone()
        return tuple(target) if is_after else end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        read = self._read
        with connected(read.url, read.title) as connection:
            cursor = cursor_of(connection, read)
            first, last = read_position(start), read_position(end)
            return ranges_of(connection, cursor, first, last, read.tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._read, self._schema, partition)
