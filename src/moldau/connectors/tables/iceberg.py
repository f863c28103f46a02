"""Iceberg tables, each row once: tasks write files, the driver makes one snapshot of them that says
which batch of which query it holds. Files of a batch that was not committed are nobody's. Needs
pyiceberg, no jar.
"""

from pathlib import Path
from typing import Any

from moldau.connectors.tables.hadoop_files import (
    Disk,
    aside_folder,
    new_aside,
    settled,
    write_aside,
)
from moldau.core.pipelines.graph import Table
from moldau.core.spark.exactly_once import Marker, Verdict, digest_of, judge, write_marker
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import short_text
from moldau.spark.sink.exactly_once import offset_lines

_CATALOG_FILE = "iceberg.db"
_NAMESPACE = "default"
_COMMITS_MAX = 10
# Their values are not told exactly by what a file says of its columns.
_UNFIT_TO_PARTITION = frozenset({"float", "double", "binary", "fixed", "uuid"})


class IcebergTarget:
    """A folder, which a catalog beside it knows; or a table of the user's own catalog."""

    def __init__(self, table: Table, name: str, checkpoint: str) -> None:
        self._said = table.path
        self._partition_by = table.partition_by
        self._name = name
        self._checkpoint = checkpoint
        self._identifier, self._place, self._catalog = _opened(table)

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        marker = Marker(query_id, batch_id, digest_of(lines))
        schema = _arrow_schema(rows)
        table = self._table(schema)
        if self._is_done(table, marker):
            # What stateful steps remember of it is not there yet.
            rows.write.format("noop").mode("overwrite").save()
            return
        # Told before anything is written.
        self._widened(table, schema)
        folder = _folder_of(table.location(), self._said)
        disk = Disk(session)
        disk.delete(aside_folder(folder, self._name))
        aside = new_aside(folder, self._name)
        copies, partitions = _with_copies(rows, self._partition_by)
        if written := write_aside(disk, copies, aside, partitions):
            places = settled(disk, written, aside, f"{folder}/data", self._name)
            self._commit(table, schema, [place for place, _ in places], marker)
        disk.delete(aside)

    def _table(self, schema: Any) -> Any:
        """Made if it is not there. Raises MoldauError."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                try:
                    table = self._made(schema)
                except TableAlreadyExistsError:
                    table = self._catalog.load_table(self._identifier)
        except Exception as error:  # noqa: BLE001 - catalogs raise all sorts
            raise self._told(error) from None
        self._refuse_other_partitions(table)
        return table

    def _made(self, schema: Any) -> Any:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        transaction = self._catalog.create_table_transaction(
            self._identifier, schema, **({} if self._place is None else {"location": self._place})
        )
        with transaction, transaction.update_spec() as spec:
            for column in self._partition_by:
                spec.add_identity(column)
        return self._catalog.load_table(self._identifier)

    def _refuse_other_partitions(self, table: Any) -> None:
        schema = table.schema()
        found = []
        for field in table.spec().fields:
            column = schema.find_column_name(field.source_id)
            kind = str(schema.find_type(field.source_id))
            if kind.partition("[")[0] in _UNFIT_TO_PARTITION:
                raise MoldauError(
                    f"table {self._said} cannot be partitioned by {column}, which is {kind}"
                )
            transform = str(field.transform)
            found.append(column if transform == "identity" else f"{transform}({column})")
        if tuple(found) != self._partition_by:
            raise MoldauError(
                f"table {self._said} is partitioned by {', '.join(found) or 'nothing'}, and "
                f"partition_by says {', '.join(self._partition_by) or 'nothing'}"
            )

    def _is_done(self, table: Any, marker: Marker) -> bool:
        """Raises StaleCheckpointError."""
        return judge(self._last_marker(table), marker, self._name) is Verdict.SKIP

    def _last_marker(self, table: Any) -> list[str]:
        """What the last snapshot of this query's says. Snapshots expire, also when others write
        the table on; the table itself does not forget then.
        """
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            found = None if summary is None else summary.additional_properties.get(self._key)
            if found is not None:
                return [found]
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return [table.properties.get(self._key, "")]

    @property
    def _key(self) -> str:
        return f"moldau.{self._name}"

    def _widened(self, table: Any, schema: Any) -> Any:
        """A transaction in which the table has the rows' columns. Raises MoldauError."""
        transaction = table.transaction()
        try:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
        except Exception as error:  # noqa: BLE001 - what it raises is not said anywhere
            raise self._told(error) from None
        return transaction

    def _commit(self, table: Any, schema: Any, files: list[str], marker: Marker) -> None:
        from pyiceberg.exceptions import CommitFailedException

        text = {self._key: write_marker(marker)}
        for attempt in range(1, _COMMITS_MAX + 1):
            # By itself pyiceberg would commit on top of whatever somebody else has committed
            # meanwhile: of another run of this query it may be this very batch.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = self._widened(table, schema)
            try:
                transaction.set_properties(text)
                transaction.add_files(files, text, check_duplicate_files=False)
                transaction.commit_transaction()
            except CommitFailedException as error:
                if attempt == _COMMITS_MAX:
                    raise self._told(error) from None
            except Exception as error:  # noqa: BLE001 - catalogs raise all sorts
                raise self._told(error) from None
            else:
                return
            table = self._table(schema)
            if self._is_done(table, marker):
                return

    def _told(self, error: Exception) -> MoldauError:
        if isinstance(error, MoldauError):
            return error
        return MoldauError(f"table {self._said}: {short_text(error)}")


def opened_table(table: Table) -> Any:
    """To read it. Raises MoldauError."""
    identifier, _, catalog = _opened(table)
    return catalog.load_table(identifier)


def _opened(table: Table) -> tuple[tuple[str, ...], str | None, Any]:
    """The table's name in the catalog, its folder if we choose it, the catalog. Raises
    MoldauError.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MoldauError("Iceberg tables need pyiceberg: pip install 'moldau[iceberg]'") from None
    given = table.catalog
    try:
        if given is not None:
            properties = dict(given.properties)
            return tuple(table.path.split(".")), None, load_catalog(given.name, **properties)
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
        name = "beside it" if given is None else f"'{given.name}'"
        raise MoldauError(
            f"table {table.path}: the catalog {name} cannot be opened: {short_text(error)}"
        ) from None


def _folder_of(location: str, said: str) -> str:
    folder = location.removeprefix("file://").removeprefix("file:")
    if "://" in folder:
        raise MoldauError(
            f"table {said}: its files are at {location}; Iceberg can only be written to folders yet"
        )
    return folder


def _with_copies(rows: Any, partition_by: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Spark leaves out of its files what is in the names of their folders; Iceberg wants it."""
    from pyspark.sql import functions as sql

    copies = {f"__moldau_{number}": column for number, column in enumerate(partition_by)}
    for copy, column in copies.items():
        rows = rows.withColumn(copy, sql.col(f"`{column}`"))
    return rows, tuple(copies)


def _arrow_schema(rows: Any) -> Any:
    """Every column may be null: what a plan knows today must not bind the table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")
