"""Writes Delta tables, each row once: tasks write files, and the driver commits them to the table's
log together with (query, batch). Readers ignore files of a batch that was not committed. Needs
deltalake, but no jar.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

from moldau.connectors.tables.hadoop_files import (
    HadoopFileSystem,
    moved_files,
    new_staging_folder,
    staging_root,
    write_to_staging,
)
from moldau.core.pipelines.graph import Table
from moldau.core.spark.errors import StaleCheckpointError
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import short_text

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def delta_library() -> Any:
    """Raises MoldauError."""
    try:
        import deltalake
    except ImportError:
        raise MoldauError("Delta tables need deltalake: pip install 'moldau[delta]'") from None
    return deltalake


class DeltaTarget:
    """A Delta table in a folder of this machine, or one that all machines share."""

    def __init__(self, table: Table, name: str) -> None:
        self._library = delta_library()
        if "://" in table.path:
            raise MoldauError(f"table {table.path}: so far Delta tables can only be in folders")
        self._path = table.path.rstrip("/")
        self._partition_by = table.partition_by
        self._name = name

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        application = f"{self._name}.{query_id}"
        schema = self._library.Schema.from_arrow(_arrow_schema(rows))
        table = self._table(schema)
        committed = table.transaction_version(application)
        if committed is not None and committed >= batch_id:
            if committed > batch_id:
                raise StaleCheckpointError(
                    f"'{self._name}': batch {committed} is committed, and the checkpoint begins at "
                    f"{batch_id}; it is an older copy"
                )
            # The state of stateful steps is not committed yet: run them without writing.
            rows.write.format("noop").mode("overwrite").save()
            return
        # Before anything is written, so that errors leave no files.
        self._evolve_schema(table, schema, rows.schema)
        disk = HadoopFileSystem(session)
        disk.delete(staging_root(self._path, self._name))
        staging = new_staging_folder(self._path, self._name)
        if written := write_to_staging(disk, rows, staging, self._partition_by):
            added = [
                self._action(path, folders, disk.size(path))
                for path, folders in moved_files(disk, written, staging, self._path, self._name)
            ]
            self._commit(table, schema, added, (application, batch_id))
        disk.delete(staging)

    def _table(self, schema: Any) -> Any:
        """The table, created if it does not exist. Raises MoldauError."""
        try:
            table = self._library.DeltaTable.create(
                self._path, schema, mode="ignore", partition_by=list(self._partition_by) or None
            )
        except Exception as error:  # noqa: BLE001 - its errors are not documented
            raise self._error(error) from None
        columns = tuple(table.metadata().partition_columns)
        if columns != self._partition_by:
            raise MoldauError(
                f"table {self._path} is partitioned by {', '.join(columns) or 'nothing'}, and "
                f"partition_by says {', '.join(self._partition_by) or 'nothing'}"
            )
        return table

    def _evolve_schema(self, table: Any, schema: Any, row_schema: Any) -> None:
        """Adds new columns to the table. Refuses rows that do not fit its schema, which the library
        would not notice. Raises MoldauError.
        """
        existing = {field.name: field for field in table.schema().fields}
        written = {field.name: field for field in schema.fields}
        for name in existing.keys() & written.keys():
            before, now = _kind(existing[name].type), _kind(written[name].type)
            if before != now:
                raise MoldauError(
                    f"table {self._path}: its column {name} is {before}, and the flow's is {now}; "
                    "cast it, or write another table"
                )
        never_null = {field.name for field in row_schema.fields if not field.nullable}
        for name, field in existing.items():
            if not field.nullable and (name not in written or name not in never_null):
                raise MoldauError(
                    f"table {self._path}: its column {name} must have a value, and the flow's may "
                    "be null or missing; give it one with coalesce"
                )
        new = [field for name, field in written.items() if name not in existing]
        if new:
            try:
                table.alter.add_columns(new)
            except Exception as error:  # noqa: BLE001 - its errors are not documented
                raise self._error(error) from None

    def _error(self, error: Exception) -> MoldauError:
        return MoldauError(f"table {self._path}: {short_text(error)}")

    def _action(self, path: str, folders: str, size: int) -> Any:
        from deltalake.transaction import AddAction
        from pyarrow import parquet

        rows = parquet.read_metadata(path).num_rows
        values: dict[str, str | None] = {}
        for part in folders.split("/") if folders else ():
            column, _, value = part.partition("=")
            values[unquote(column)] = None if value == _NO_VALUE else unquote(value)
        name = path.rpartition("/")[2]
        return AddAction(name, size, values, 0, True, json.dumps({"numRecords": rows}))

    def _commit(self, table: Any, schema: Any, added: list[Any], marker: tuple[str, int]) -> None:
        transaction = self._library.Transaction(*marker)
        properties = self._library.CommitProperties(app_transactions=[transaction])
        try:
            table.create_write_transaction(
                added,
                "append",
                schema,
                list(self._partition_by) or None,
                commit_properties=properties,
            )
        except Exception as error:  # noqa: BLE001 - its errors are not documented
            raise self._error(error) from None


def _arrow_schema(rows: Any) -> Any:
    """The schema with nullable columns, so that today's plan does not restrict the table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")


def _kind(kind: Any) -> str:
    """The type as in the table's log, ignoring what may be null."""
    text = str(kind.to_json())
    return re.sub(r'("(?:nullable|containsNull|valueContainsNull)":)false', r"\1true", text).strip(
        '"'
    )
