"""Tables of PostgreSQL as a source of Spark's, in streams and batches: read on and on by a column
that grows. A batch is all rows between two positions; both are in the checkpoint before it is read.
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
# Smaller ranges are read by one task.
_SPLIT_ROWS = 10_000


@frozen(kw_only=True)
class Wanted:
    """What is read of which table."""

    url: str
    table: str
    by: str
    key: tuple[str, ...] = ()
    start: str = "earliest"
    lag_ms: int = 0
    rows_max: int | None = None
    tasks: int = 1
    tells_bad: bool = False
    """Rows that do not fit are told as such; else they are an error."""

    @property
    def what(self) -> str:
        return f"table {self.table}"


def options_of(source: Postgres, start: str | None = None) -> dict[str, str]:
    """For `PostgresSource`. The url has no password."""
    assert source.by is not None
    wanted = {
        "url": source.url,
        "table": source.name,
        "by": source.by,
        "key": list(source.key),
        "start": source.start if start is None else start,
        "lag_ms": source.lag_ms,
        "rows_max": source.max_rows_per_trigger,
        "tasks": source.tasks,
        "tells_bad": source.on_error is not OnError.FAIL,
    }
    return {"wanted": json.dumps(wanted)}


def wanted_of(options: Any) -> Wanted:
    found = json.loads(options["wanted"])
    return Wanted(**found | {"key": tuple(found["key"])})


def with_bad_rows(schema: str) -> str:
    return f"{schema}, {BAD_ROW} STRING, {BAD_REASON} STRING"


class PostgresSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _wanted(self) -> Wanted:
        return wanted_of(self.options)

    def schema(self) -> str:
        wanted = self._wanted()
        with connected(wanted.url, wanted.what, 0.0) as connection:
            columns = columns_of(connection, wanted.table)
            if not columns:
                raise no_such_table(connection, wanted.table)
        kinds = ", ".join(f"`{one.name}` {spark_kind_of(one.kind)}" for one in columns)
        return with_bad_rows(kinds) if wanted.tells_bad else kinds

    def reader(self, schema: StructType) -> DataSourceReader:
        return PostgresReader(self._wanted(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return PostgresStreamReader(self._wanted(), schema)


class Range(InputPartition):
    """What one task reads: behind `start` up to `end` and, of that, between two values of `by`."""

    def __init__(self, cursor: Cursor, start: Position, end: Position, cut: Any = None) -> None:
        super().__init__(None)
        self.cursor = cursor
        self.start = start
        self.end = end
        self.cut: tuple[str | None, str | None] = cut or (None, None)


def cursor_of(connection: Any, wanted: Wanted) -> Cursor:
    """Raises MoldauError where the table cannot be read that way."""
    kinds = dict(columns_of(connection, wanted.table))
    if not kinds:
        raise no_such_table(connection, wanted.table)
    unique = unique_keys_of(connection, wanted.table, wanted.by)
    key = wanted.key
    if not key and (wanted.by,) not in unique:
        if not unique:
            raise PostgresError(
                f"{wanted.what}: rows with equal {wanted.by} cannot be told apart; name a key"
            )
        key = unique[0]
    columns = (wanted.by, *(name for name in key if name != wanted.by))
    for name in columns:
        if name not in kinds:
            raise PostgresError(
                f"{wanted.what} has no column '{name}'{suggestion(name, kinds)}; it has "
                f"{', '.join(kinds)}"
            )
    cursor = Cursor(
        table=wanted.table,
        columns=columns,
        kinds=tuple(kinds[name] for name in columns),
        lag_ms=wanted.lag_ms,
    )
    check_lag(cursor)
    return cursor


def first_position(wanted: Wanted, patience_s: float = PATIENCE_S) -> Position:
    """Where a table is begun. Raises MoldauError."""
    if wanted.start.startswith("{"):
        return read_position(wanted.start)
    with connected(wanted.url, wanted.what, patience_s) as connection:
        cursor = cursor_of(connection, wanted)
        if wanted.start == "earliest":
            return None
        if wanted.start == "latest":
            return _last(connection, cursor, None, None)
        # Whether the server takes it for a value of the column.
        row = connection.execute(f"SELECT %s::{cursor.kinds[0]}::text", [wanted.start]).fetchone()
        return (str(row[0]),)


def _last(connection: Any, cursor: Cursor, start: Position, rows_max: int | None) -> Position:
    row = connection.execute(*cursor.last_of(start, rows_max)).fetchone()
    if row is None and rows_max is not None:
        return _last(connection, cursor, start, None)
    return None if row is None else tuple(row)


def ranges_of(
    connection: Any, cursor: Cursor, start: Position, end: Position, tasks: int
) -> list[InputPartition]:
    """One for each task: more than one where there is much to read."""
    whole: list[InputPartition] = [Range(cursor, start, end)]
    if tasks <= 1 or not cursor.is_even or end is None:
        return whole
    where, values = cursor.between(start, end)
    some = f"SELECT 1 FROM {quoted_table(cursor.table)} WHERE {where} LIMIT {_SPLIT_ROWS}"
    (count,) = connection.execute(f"SELECT count(*) FROM ({some}) AS found", values).fetchone()
    if count < _SPLIT_ROWS:
        return whole
    cuts = connection.execute(*cursor.cuts(start, end, tasks)).fetchone()
    ends = [None, *dict.fromkeys(cuts), None]
    return [Range(cursor, start, end, cut) for cut in pairwise(ends)]


def read_range(wanted: Wanted, schema: StructType, one: InputPartition) -> Iterator[Any]:
    """Batches of Arrow's, of bounded size."""
    assert isinstance(one, Range)
    where, values = one.cursor.between(one.start, one.end)
    low, high = one.cut
    for sign, value in ((">", low), ("<=", high)):
        if value is not None:
            where += f" AND {quoted(one.cursor.columns[0])} {sign} %s::{one.cursor.kinds[0]}"
            values.append(value)
    nested = json_columns(schema)
    columns = ", ".join(
        f"to_jsonb(t.{quoted(name)})::text" if name in nested else f"t.{quoted(name)}::text"
        for name in table_columns(schema)
    )
    # The table's own columns, not their texts.
    order = ", ".join(f"t.{quoted(name)}" for name in one.cursor.columns)
    table = quoted_table(wanted.table)
    statement = f"COPY (SELECT {columns} FROM {table} AS t WHERE {where} ORDER BY {order})"
    lines: list[bytes] = []
    size = 0
    with (
        connected(wanted.url, wanted.what) as connection,
        connection.cursor() as cursor,
        cursor.copy(f"{statement} TO STDOUT (FORMAT csv)", values) as copy,
    ):
        # The server sends a row at a time.
        for line in copy:
            lines.append(bytes(line))
            size += len(line)
            if size >= _BLOCK_BYTES or len(lines) >= _BLOCK_ROWS:
                yield arrow_batch(b"".join(lines), schema, wanted.what)
                lines, size = [], 0
    if lines:
        yield arrow_batch(b"".join(lines), schema, wanted.what)


class PostgresReader(DataSourceReader):
    """All that is there now."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted = wanted
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        wanted = self._wanted
        start = first_position(wanted, 0.0)
        with connected(wanted.url, wanted.what) as connection:
            cursor = cursor_of(connection, wanted)
            end = _last(connection, cursor, start, None) or start
            return ranges_of(connection, cursor, start, end, wanted.tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._wanted, self._schema, partition)


class PostgresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One process of Spark's asks it for the whole life of a query."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted = wanted
        self._schema = schema
        self._target: tuple[Position] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return write_position(first_position(self._wanted))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._wanted.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        wanted = self._wanted
        with connected(wanted.url, wanted.what) as connection:
            self._target = (_last(connection, cursor_of(connection, wanted), None, None),)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        position = read_position(start)
        end = self._end(position, limit)
        if end == position and self._target is None:
            # Spark would ask again at once, ninety times a second.
            threading.Event().wait(_IDLE_S)
            end = self._end(position, limit)
        return write_position(end)

    def _end(self, position: Position, limit: ReadLimit) -> Position:
        wanted = self._wanted
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with connected(wanted.url, wanted.what) as connection:
            cursor = cursor_of(connection, wanted)
            if self._target is None:
                return _last(connection, cursor, position, rows_max) or position
            (target,) = self._target
            if target is None:
                return position
            return self._up_to(connection, cursor, position, target, rows_max)

    def _up_to(
        self, connection: Any, cursor: Cursor, position: Position, target: Any, rows_max: int | None
    ) -> Position:
        """What came after the run was begun is left to the next."""
        where, values = cursor.between(position, target)
        found = connection.execute(
            f"SELECT 1 FROM {quoted_table(cursor.table)} WHERE {where} LIMIT 1", values
        ).fetchone()
        if found is None:
            return position
        if rows_max is None:
            return tuple(target)
        end = _last(connection, cursor, position, rows_max)
        assert end is not None
        casts = ", ".join(f"%s::{kind}" for kind in cursor.kinds)
        (is_behind,) = connection.execute(
            f"SELECT ({casts}) > ({casts})", [*end, *target]
        ).fetchone()
        return tuple(target) if is_behind else end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        wanted = self._wanted
        with connected(wanted.url, wanted.what) as connection:
            cursor = cursor_of(connection, wanted)
            first, last = read_position(start), read_position(end)
            return ranges_of(connection, cursor, first, last, wanted.tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._wanted, self._schema, partition)
