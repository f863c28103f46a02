"""Lookup tables: a run reads each of them at its start, and those with a `refresh` again, for all
its queries. Stateless flows are applied to each batch, and see the rows that were read last; a
stateful flow has one plan for the whole run, and sees the rows of its start.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moldau.connectors.postgres.source import FORMAT, options_of
from moldau.connectors.tables.iceberg import opened_table
from moldau.core.pipelines.graph import Lookup, Pipeline, PipelineError, Postgres, Table, TableKind
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.spark.runtime.spark_errors import cause_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Copy:
    """A copy of a table's rows in the driver, so that batches do not see changes of the table."""

    rows: Any
    """An Arrow table."""
    schema: Any
    """Spark's schema."""

    def frame(self, session: Any) -> Any:
        return session.createDataFrame(self.rows, self.schema)


class Lookups:
    """The lookups of one run, shared by its queries."""

    def __init__(self, session: Any, pipeline: Pipeline) -> None:
        """Reads all tables. Raises PipelineError."""
        self._session = session
        self._lookups = pipeline.lookups
        self._lock = threading.Lock()
        self._read_at = dict.fromkeys(self._lookups, time.monotonic())
        self._copies = {
            name: _copy(session, name, lookup) for name, lookup in self._lookups.items()
        }

    def latest(self, names: Iterable[str]) -> dict[str, _Copy]:
        """The copies of these tables, read again if a refresh is due."""
        with self._lock:
            for name in names:
                self._refresh(name, time.monotonic())
            return {name: self._copies[name] for name in names}

    def frames(self) -> dict[str, Any]:
        """Frames of all tables, for plans in the run's session."""
        return {name: copy.frame(self._session) for name, copy in self._copies.items()}

    def _refresh(self, name: str, now: float) -> None:
        every_ms = self._lookups[name].refresh_ms
        if every_ms is None or (now - self._read_at[name]) * 1000 < every_ms:
            return
        self._read_at[name] = now
        try:
            self._copies[name] = _copy(self._session, name, self._lookups[name])
        except PipelineError as error:
            # The table may be replaced just now, or its server restarted: the run continues.
            _log.warning("%s; using the rows read before until the next refresh", error)


class LookupFrames:
    """The lookups of one query's flows, in the session of its batches."""

    def __init__(self, lookups: Lookups, names: Iterable[str]) -> None:
        self._lookups = lookups
        self._names = tuple(names)
        self._made: dict[str, tuple[_Copy, Any]] = {}

    def frames(self, session: Any) -> Mapping[str, Any]:
        for name, copy in self._lookups.latest(self._names).items():
            if name not in self._made or self._made[name][0] is not copy:
                self._made[name] = (copy, copy.frame(session))
        return {name: frame for name, (_, frame) in self._made.items()}


def shapes_of_lookups(session: Any, pipeline: Pipeline) -> dict[str, Any]:
    """Empty frames with the columns of all lookups, for plans. A table with a declared schema need
    not exist. Raises PipelineError.
    """
    return {
        name: session.createDataFrame([], lookup.schema or _schema(session, name, lookup))
        for name, lookup in pipeline.lookups.items()
    }


def _schema(session: Any, name: str, lookup: Lookup) -> Any:
    try:
        return _rows(session, lookup, only_columns=True).schema
    except Exception as error:  # noqa: BLE001 - Spark and tables raise all sorts
        raise pipeline_error(lookup.spot, f"'{name}': {cause_of(error)}") from None


def _copy(session: Any, name: str, lookup: Lookup) -> _Copy:
    """Raises PipelineError."""
    try:
        rows = _rows(session, lookup)
        return _Copy(rows.toArrow(), rows.schema)
    except Exception as error:  # noqa: BLE001 - Spark and tables raise all sorts
        raise pipeline_error(lookup.spot, f"'{name}': {cause_of(error)}") from None


def _rows(session: Any, lookup: Lookup, *, only_columns: bool = False) -> Any:
    if isinstance(lookup, Postgres):
        # The whole table, in the order of its key.
        reader = session.read.format(FORMAT)
        source = replace(lookup, by=lookup.key[0])
        reader = reader.options(**options_of(source))
        return (reader if lookup.schema is None else reader.schema(lookup.schema)).load()
    rows = _table_rows(session, lookup, only_columns=only_columns)
    if lookup.schema is None:
        return rows
    wanted = session.createDataFrame([], lookup.schema).schema
    return rows.select(*[rows[f"`{field.name}`"].cast(field.dataType) for field in wanted])


def _table_rows(session: Any, table: Table, *, only_columns: bool) -> Any:
    if table.kind is TableKind.PARQUET:
        return session.read.parquet(table.path)
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable

        delta = DeltaTable(table.path).to_pyarrow_dataset()
        found = delta.schema.empty_table() if only_columns else delta.to_table()
    else:
        iceberg = opened_table(table)
        columns = iceberg.schema().as_arrow()
        found = columns.empty_table() if only_columns else iceberg.scan().to_arrow()
    return session.createDataFrame(found)
