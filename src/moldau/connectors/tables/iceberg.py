"""Writes Iceberg tables, each row once: tasks write files, and the driver commits them as a
snapshot that names the query and the batch. Readers ignore files of a batch that was not committed.
Needs pyiceberg, but no jar.
"""

from pathlib import Path
from typing import Any

from moldau.connectors.tables.hadoop_files import (
    HadoopFileSystem,
    moved_files,
    new_staging_folder,
    staging_root,
    write_to_staging,
)
from moldau.core.pipelines.graph import Table
from moldau.core.spark.exactly_once import (
    BatchMarker,
    BatchVerdict,
    digest_of,
    verdict_on,
    write_marker,
)
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import short_text
from moldau.spark.sink.checkpoint_files import offset_lines

_CATALOG_FILE = "iceberg.db"
_NAMESPACE = "default"
_COMMITS_MAX = 10
# The column statistics of a file do not give the exact values of these types.
_UNPARTITIONABLE = frozenset({"float", "double", "binary", "fixed", "uuid"})


class IcebergTarget:
    """An Iceberg table in a folder, with a catalog beside it, or in the user's own catalog."""

    def __init__(self, table: Table, name: str, checkpoint: str) -> None:
        self._declared = table.path
        self._partition_by = table.partition_by
        self._name = name
        self._checkpoint = checkpoint
        self._identifier, self._folder, self._catalog = _opened(table)

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        marker = BatchMarker(query_id, batch_id, digest_of(lines))
        schema = _arrow_schema(rows)
        table = self._table(schema)
        if self._is_committed(table, marker):
            # The state of stateful steps is not committed yet: run them without writing.
            rows.write.format("noop").mode("overwrite").save()
            return
        # Before anything is written, so that errors leave no files.
        self._with_new_columns(table, schema)
        folder = _folder_of(table.location(), self._declared)
        disk = HadoopFileSystem(session)
        disk.delete(staging_root(folder, self._name))
        staging = new_staging_folder(folder, self._name)
        copies, partitions = _with_copies(rows, self._partition_by)
        if written := write_to_staging(disk, copies, staging, partitions):
            moved = moved_files(disk, written, staging, f"{folder}/data", self._name)
            self._commit(table, schema, [path for path, _ in moved], marker)
        disk.delete(staging)

    def _table(self, schema: Any) -> Any:
        """The table, created if it does not exist. Raises MoldauError."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                try:
                    table = self._created(schema)
                except TableAlreadyExistsError:
                    table = self._catalog.load_table(self._identifier)
        except Exception as error:  # noqa: BLE001 - catalogs raise all sorts
            raise self._error(error) from None
        self._refuse_other_partitions(table)
        return table

    def _created(self, schema: Any) -> Any:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        transaction = self._catalog.create_table_transaction(
            self._identifier, schema, **({} if self._folder is None else {"location": self._folder})
        )
        with transaction, transaction.update_spec() as spec:
            for column in self._partition_by:
                spec.add_identity(column)
        return self._catalog.load_table(self._identifier)

    def _refuse_other_partitions(self, table: Any) -> None:
        schema = table.schema()
        columns = []
        for field in table.spec().fields:
            column = schema.find_column_name(field.source_id)
            kind = str(schema.find_type(field.source_id))
            if kind.partition("[")[0] in _UNPARTITIONABLE:
                raise MoldauError(
                    f"table {self._declared} cannot be partitioned by {column}, which is {kind}"
                )
            transform = str(field.transform)
            columns.append(column if transform == "identity" else f"{transform}({column})")
        if tuple(columns) != self._partition_by:
            raise MoldauError(
                f"table {self._declared} is partitioned by {', '.join(columns) or 'nothing'}, and "
                f"partition_by says {', '.join(self._partition_by) or 'nothing'}"
            )

    def _is_committed(self, table: Any, marker: BatchMarker) -> bool:
        """Raises StaleCheckpointError."""
        return verdict_on(self._last_marker(table), marker, self._name) is BatchVerdict.SKIP

    def _last_marker(self, table: Any) -> list[str]:
        """The marker in the last snapshot of this query. Snapshots expire, also when other programs
        write the table; then the marker in the table's properties is used.
        """
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            marker = None if summary is None else summary.additional_properties.get(self._key)
            if marker is not None:
                return [marker]
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return [table.properties.get(self._key, "")]

    @property
    def _key(self) -> str:
        return f"moldau.{self._name}"

    def _with_new_columns(self, table: Any, schema: Any) -> Any:
        """A transaction in which the table has all columns of the rows. Raises MoldauError."""
        transaction = table.transaction()
        try:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
        except Exception as error:  # noqa: BLE001 - its errors are not documented
            raise self._error(error) from None
        return transaction

    def _commit(self, table: Any, schema: Any, files: list[str], marker: BatchMarker) -> None:
        from pyiceberg.exceptions import CommitFailedException

        text = {self._key: write_marker(marker)}
        for attempt in range(1, _COMMITS_MAX + 1):
            # Without this, pyiceberg would commit on top of a concurrent commit, which may be this
            # batch, committed by another run of the query.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = self._with_new_columns(table, schema)
            try:
                transaction.set_properties(text)
                transaction.add_files(files, text, check_duplicate_files=False)
                transaction.commit_transaction()
            except CommitFailedException as error:
                if attempt == _COMMITS_MAX:
                    raise self._error(error) from None
            except Exception as error:  # noqa: BLE001 - catalogs raise all sorts
                raise self._error(error) from None
            else:
                return
            table = self._table(schema)
            if self._is_committed(table, marker):
                return

    def _error(self, error: Exception) -> MoldauError:
        if isinstance(error, MoldauError):
            return error
        return MoldauError(f"table {self._declared}: {short_text(error)}")


def opened_table(table: Table) -> Any:
    """The table, for reading. Raises MoldauError."""
    identifier, _, catalog = _opened(table)
    return catalog.load_table(identifier)


def _opened(table: Table) -> tuple[tuple[str, ...], str | None, Any]:
    """The table's name in the catalog, its folder unless the catalog chooses it, and the catalog.
    Raises MoldauError.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MoldauError("Iceberg tables need pyiceberg: pip install 'moldau[iceberg]'") from None
    declared = table.catalog
    try:
        if declared is not None:
            properties = dict(declared.properties)
            return tuple(table.path.split(".")), None, load_catalog(declared.name, **properties)
        folder = Path(_folder_of(table.path.rstrip("/"), table.path))
        folder.parent.mkdir(parents=True, exist_ok=True)
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder.parent / _CATALOG_FILE}",
            "warehouse": str(folder.parent),
        }
        return (_NAMESPACE, folder.name), str(folder), load_catalog("moldau", **properties)
    except MoldauError:
        raise
    except Exception as error:  # noqa: BLE001 - catalogs raise all sorts
        name = "beside it" if declared is None else f"'{declared.name}'"
        raise MoldauError(
            f"table {table.path}: the catalog {name} cannot be opened: {short_text(error)}"
        ) from None


def _folder_of(location: str, table: str) -> str:
    folder = location.removeprefix("file://").removeprefix("file:")
    if "://" in folder:
        raise MoldauError(
            f"table {table}: its files are at {location}; "
            "so far Iceberg tables can only be in folders"
        )
    return folder


def _with_copies(rows: Any, partition_by: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Copies the partition columns: Spark leaves them out of the files, but Iceberg needs them."""
    from pyspark.sql import functions as sql

    copies = {f"__moldau_{number}": column for number, column in enumerate(partition_by)}
    for copy, column in copies.items():
        rows = rows.withColumn(copy, sql.col(f"`{column}`"))
    return rows, tuple(copies)


def _arrow_schema(rows: Any) -> Any:
    """The schema with nullable columns, so that today's plan does not restrict the table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")
