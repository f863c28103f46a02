"""Writes tables of PostgreSQL, each row once: tasks copy rows into a stage table, and in one
transaction the driver merges it, records (query, batch) and drops the stage.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from moldau.connectors.postgres.server import (
    PostgresError,
    ServerLostError,
    columns_of,
    connected,
    driver,
    no_such_table,
)
from moldau.core.connectors.postgres_sql import (
    DELETED,
    MARKERS,
    Merge,
    WrittenColumn,
    create_markers,
    create_stage,
    create_table,
    quoted_table,
    sibling_table,
    stage_prefix,
)
from moldau.core.pipelines.graph import Mode, Postgres
from moldau.core.spark.errors import suggestion
from moldau.core.spark.exactly_once import (
    BatchMarker,
    BatchVerdict,
    digest_of,
    verdict_on,
    write_marker,
)
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.spark.runtime.exact_times import EXACT_TIMES
from moldau.spark.runtime.recognised_errors import is_raised
from moldau.spark.sink.checkpoint_files import offset_lines

_log = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Attempts to write a batch if the connection breaks."""
_REPORT = "attempt bigint, rows bigint"
# Options of to_json: fields that are null are kept.
_JSON = {"ignoreNullFields": "false", **EXACT_TIMES}
_PLACE_COLUMNS = ("part", "place", "attempt")


class PostgresTarget:
    """`name` is unique to the query and flow: the commit is recorded under it."""

    def __init__(self, table: Postgres, mode: Mode, name: str, checkpoint: str) -> None:
        driver()
        self._table = table
        self._mode = mode
        self._name = name
        self._checkpoint = checkpoint
        self._title = f"table {table.name}"
        self._is_prepared = False

    def write(self, rows: Any, batch_id: int) -> None:
        """Raises PostgresError."""
        session = rows.sparkSession
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        self.put(rows, BatchMarker(query_id, batch_id, digest_of(lines)))

    def put(self, rows: Any, marker: BatchMarker | None) -> None:
        """Writes a batch; without a marker, even if it was written before."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._put(rows, marker)
            except Exception as error:
                can_retry = attempt < ATTEMPTS_MAX and self._is_prepared
                if not can_retry or not is_raised(ServerLostError, error):
                    raise
                _log.warning("'%s': retrying a batch: %s", self._name, error)
                continue
            return

    def _put(self, rows: Any, marker: BatchMarker | None) -> None:
        # An unreachable server is reported at once, unless it was reachable before.
        patience = {} if self._is_prepared else {"patience_s": 0.0}
        with connected(self._table.url, self._title, **patience) as connection:
            columns = self._prepare(connection, rows)
            if marker is not None and self._verdict(connection, marker) is BatchVerdict.SKIP:
                # The state of stateful steps is not committed yet: run them without writing.
                rows.write.format("noop").mode("overwrite").save()
                return
            names = [name for name in rows.columns if name != DELETED]
            stage = sibling_table(self._table.name, stage_prefix(self._name) + secrets.token_hex(8))
            has_deleted = DELETED in rows.columns
            connection.execute(create_stage(stage, len(names) + has_deleted), ())
        copied = _texts(rows, names).mapInArrow(StageCopy(self._table.url, stage), _REPORT)
        attempts = [row["attempt"] for row in copied.collect()]
        merge = Merge(
            table=self._table.name,
            stage=stage,
            columns=tuple(columns),
            mode=self._mode,
            key=self._table.key,
            deleted_index=len(names) if has_deleted else None,
        )
        self._merge(merge, attempts, marker)

    def _prepare(self, connection: Any, rows: Any) -> list[WrittenColumn]:
        """Creates missing tables. Returns the columns for the rows. Raises PostgresError."""
        kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        if DELETED in kinds:
            kinds.pop(DELETED)
        if not columns_of(connection, self._table.name) and self._table.create:
            connection.execute(create_table(self._table.name, kinds, self._table.key), ())
        if not self._is_prepared:
            connection.execute(create_markers(self._table.name), ())
            self._drop_old_stages(connection)
        existing = dict(columns_of(connection, self._table.name))
        if not existing:
            raise no_such_table(connection, self._table.name)
        self._is_prepared = True
        for name in kinds:
            if name not in existing:
                raise PostgresError(
                    f"{self._title} has no column '{name}'{suggestion(name, existing)}; it has "
                    f"{', '.join(existing)}"
                )
        return [WrittenColumn(name, kind, existing[name]) for name, kind in kinds.items()]

    def _drop_old_stages(self, connection: Any) -> None:
        """Drops the stages of killed runs. A run that still writes loses its stage, and with it its
        batch.
        """
        prefix = stage_prefix(self._name)
        stages = connection.execute(
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE starts_with(c.relname, %s) AND c.relkind = 'r' "
            "AND pg_has_role(c.relowner, 'USAGE')",
            [prefix],
        ).fetchall()
        for (stage,) in stages:
            try:
                connection.execute("SET lock_timeout TO '5s'")
                connection.execute(f"DROP TABLE IF EXISTS {quoted_table(stage)}", ())
            except driver().errors.LockNotAvailable:
                _log.warning("stage %s is still in use; the next run drops it", stage)
            finally:
                connection.execute("SET lock_timeout TO 0")

    def _verdict(self, connection: Any, marker: BatchMarker) -> BatchVerdict:
        """Raises StaleCheckpointError."""
        row = connection.execute(
            f"SELECT query_id, batch_id, digest FROM {self._markers} WHERE name = %s FOR UPDATE",
            [self._name],
        ).fetchone()
        known = [] if row is None else [write_marker(BatchMarker(*row))]
        return verdict_on(known, marker, self._name)

    @property
    def _markers(self) -> str:
        return quoted_table(sibling_table(self._table.name, MARKERS))

    def _merge(self, merge: Merge, attempts: list[int], marker: BatchMarker | None) -> None:
        with connected(self._table.url, self._title) as connection, connection.transaction():
            if marker is not None:
                connection.execute(
                    f"INSERT INTO {self._markers} (name, query_id, batch_id, digest) "
                    "VALUES (%s, '', -1, '') ON CONFLICT (name) DO NOTHING",
                    [self._name],
                )
                # With the row's lock, no other run can commit before this one.
                if self._verdict(connection, marker) is BatchVerdict.SKIP:
                    return
                connection.execute(
                    f"UPDATE {self._markers} SET query_id = %s, batch_id = %s, digest = %s, "
                    "committed = now() WHERE name = %s",
                    [*marker, self._name],
                )
            for statement, takes_attempts in merge.statements():
                connection.execute(statement, [attempts] if takes_attempts else ())
            connection.execute(f"DROP TABLE {quoted_table(merge.stage)}", ())


def _texts(rows: Any, names: list[str]) -> Any:
    """Every column as a text that the server can read."""
    from pyspark.sql import functions as sql

    fields = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    texts = [_text(sql, name, fields[name]) for name in names]
    if DELETED in fields:
        texts.append(sql.col(DELETED).cast("string"))
    return rows.select([text.alias(f"c{index}") for index, text in enumerate(texts)])


def _text(sql: Any, name: str, kind: str) -> Any:
    column = sql.col(f"`{name}`")
    if kind == "binary":
        return sql.concat(sql.lit("\\x"), sql.hex(column))
    if kind == "timestamp":
        return sql.unix_micros(column).cast("string")
    if kind.startswith(("array<", "struct<", "map<")) or kind == "variant":
        return sql.when(column.isNotNull(), sql.to_json(column, _JSON))
    return column.cast("string")


class StageCopy:
    """The function of a task: copies its rows to the stage, and returns its attempt's number."""

    def __init__(self, url: str, stage: str) -> None:
        self._url = url
        self._stage = stage

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.taskAttemptId()
        copied = 0
        lines = (batch for batch in batches if batch.num_rows)
        first = next(lines, None)
        if first is None:
            return
        names = ", ".join([*_PLACE_COLUMNS, *first.schema.names])
        statement = f"COPY {quoted_table(self._stage)} ({names}) FROM STDIN (FORMAT csv)"
        with (
            connected(self._url, "the stage") as connection,
            connection.transaction(),
            connection.cursor() as cursor,
            cursor.copy(statement, ()) as copy,
        ):
            for batch in _chain(first, lines):
                copy.write(_csv(pa, batch, part, copied, attempt))
                copied += batch.num_rows
        yield pa.RecordBatch.from_pydict(
            {"attempt": pa.array([attempt], pa.int64()), "rows": pa.array([copied], pa.int64())}
        )


def _chain(first: Any, others: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _csv(pa: Any, batch: Any, part: int, place: int, attempt: int) -> Any:
    from pyarrow import csv

    count = batch.num_rows
    own = [
        pa.array([part] * count, pa.int32()),
        pa.array(range(place, place + count), pa.int64()),
        pa.array([attempt] * count, pa.int64()),
    ]
    table = pa.Table.from_arrays(
        [*own, *batch.columns], names=[*_PLACE_COLUMNS, *batch.schema.names]
    )
    out = pa.BufferOutputStream()
    # As the server reads it: an empty field is null, and quotes are an empty text.
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return out.getvalue().to_pybytes()
