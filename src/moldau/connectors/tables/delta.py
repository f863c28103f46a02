"""Delta tables, each row once: tasks write files, the driver commits them to the table's log
together with (query, batch). Files of a batch that was not committed are nobody's. Needs deltalake,
no jar.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

from moldau.connectors.tables.hadoop_files import (
    Disk,
    aside_folder,
    new_aside,
    settled,
    write_aside,
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
    """A folder of this machine, or one that all machines share."""

    def __init__(self, table: Table, name: str) -> None:
        self._library = delta_library()
        if "://" in table.path:
            raise MoldauError(f"table {table.path}: Delta can only be written to folders yet")
        self._path = table.path.rstrip("/")
        self._partition_by = table.partition_by
        self._name = name

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        application = f"{self._name}.{query_id}"
        schema = self._library.Schema.from_arrow(_arrow_schema(rows))
        table = self._table(schema)
        done = table.transaction_version(application)
        if done is not None and done >= batch_id:
            if done > batch_id:
                raise StaleCheckpointError(
                    f"'{self._name}': batch {done} is committed, and the checkpoint begins at "
                    f"{batch_id}; it is an older copy"
                )
            # What stateful steps remember of it is not there yet.
            rows.write.format("noop").mode("overwrite").save()
            return
        # Told before anything is written.
        self._fit(table, schema, rows.schema)
        disk = Disk(session)
        disk.delete(aside_folder(self._path, self._name))
        aside = new_aside(self._path, self._name)
        if written := write_aside(disk, rows, aside, self._partition_by):
            added = [
                self._action(place, folders, disk.size(place))
                for place, folders in settled(disk, written, aside, self._path, self._name)
            ]
            self._commit(table, schema, added, (application, batch_id))
        disk.delete(aside)

    def _table(self, schema: Any) -> Any:
        """Made if it is not there. Raises MoldauError."""
        try:
            table = self._library.DeltaTable.create(
                self._path, schema, mode="ignore", partition_by=list(self._partition_by) or None
            )
        except Exception as error:  # noqa: BLE001 - what it raises is not said anywhere
            raise self._told(error) from None
        found = tuple(table.metadata().partition_columns)
        if found != self._partition_by:
            raise MoldauError(
                f"table {self._path} is partitioned by {', '.join(found) or 'nothing'}, and "
                f"partition_by says {', '.join(self._partition_by) or 'nothing'}"
            )
        return table

    def _fit(self, table: Any, schema: Any, given: Any) -> None:
        """Adds columns that are new. Nobody else checks what files hold. Raises MoldauError."""
        there = {field.name: field for field in table.schema().fields}
        wanted = {field.name: field for field in schema.fields}
        for name in there.keys() & wanted.keys():
            before, now = (_kind(one[name].type) for one in (there, wanted))
            if before != now:
                raise MoldauError(
                    f"table {self._path}: its column {name} is {before}, and the flow's is {now}; "
                    "cast it, or write another table"
                )
        may_be_null = wanted.keys() - {one.name for one in given.fields if not one.nullable}
        for name, field in there.items():
            if not field.nullable and (name not in wanted or name in may_be_null):
                raise MoldauError(
                    f"table {self._path}: its column {name} must have a value, and the flow's may "
                    "be null or missing; coalesce gives it one"
                )
        new = [field for name, field in wanted.items() if name not in there]
        if new:
            try:
                table.alter.add_columns(new)
            except Exception as error:  # noqa: BLE001 - what it raises is not said anywhere
                raise self._told(error) from None

    def _told(self, error: Exception) -> MoldauError:
        return MoldauError(f"table {self._path}: {short_text(error)}")

    def _action(self, place: str, folders: str, size: int) -> Any:
        from deltalake.transaction import AddAction
        from pyarrow import parquet

        rows = parquet.read_metadata(place).num_rows
        values: dict[str, str | None] = {}
        for part in folders.split("/") if folders else ():
            column, _, value = part.partition("=")
            values[unquote(column)] = None if value == _NO_VALUE else unquote(value)
        name = place.rpartition("/")[2]
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
        except Exception as error:  # noqa: BLE001 - what it raises is not said anywhere
            raise self._told(error) from None


def _arrow_schema(rows: Any) -> Any:
    """Every column may be null: what a plan knows today must not bind the table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")


def _kind(kind: Any) -> str:
    """As the table's log has it, whatever may be null in it."""
    text = str(kind.to_json())
    return re.sub(r'("(?:nullable|containsNull|valueContainsNull)":)false', r"\1true", text).strip(
        '"'
    )
