"""The functions of a pipeline's file that declare tables: in files and in PostgreSQL, as targets,
lookups and sources.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from urllib.parse import urlsplit

from moldau.core.pipelines.graph import Catalog, Postgres, Spot, Table, TableKind
from moldau.core.spark.errors import OptionError
from moldau.pipelines.declare.arguments import (
    Expected,
    check_whole,
    duration_ms,
    expectations_of,
    on_error_of,
    pipeline_error,
    refresh_of,
    word_of,
)
from moldau.pipelines.declare.calls import checked
from moldau.pipelines.declare.formats import pairs_of
from moldau.pipelines.declare.source_locations import caller


@checked
def table(  # noqa: PLR0913 - read and written
    path: str | Path,
    *,
    format: str = "parquet",  # noqa: A002 - the user's word
    partition_by: str | Sequence[str] = (),
    catalog: str | Mapping[str, str] | None = None,
    schema: str | None = None,
    refresh: str = "start",
    spot: Spot | None = None,
) -> Table:
    """Declares a table in files: a target as `into` of a flow, a lookup if assigned to a variable.

    A flow with a lookup's name as an argument gets the rows of that table.

    Args:
        path: The table's folder, relative to the pipeline's file; with `catalog` its name there.
        format: `"parquet"`, `"delta"` or `"iceberg"`.
        partition_by: Columns to partition the files by. For targets.
        catalog: The catalog of an Iceberg table: the name in pyiceberg's configuration, or its
            properties.
        schema: The columns of a lookup, if they are not those of the table.
        refresh: When a lookup is read: `"start"` (once, at the start of a run) or a duration such
            as `"10m"` after which it is read again.
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared table.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        @mp.flow(into=mp.table("lake/orders", partition_by="day"))
        def lake(orders):
            return orders.selectExpr("*", "to_date(ts) AS day")
        ```
    """
    spot = spot or caller()
    kind = word_of(TableKind, format, "format", spot)
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return Table(
        path=str(path),
        kind=kind,
        spot=spot,
        partition_by=columns,
        catalog=None if catalog is None else _catalog_of(catalog),
        schema=schema,
        refresh_ms=refresh_of(refresh, spot),
    )


def _catalog_of(catalog: str | Mapping[str, str]) -> Catalog:
    if isinstance(catalog, str):
        return Catalog(catalog)
    properties = dict(catalog)
    return Catalog(properties.pop("name", "moldau"), pairs_of(properties))


@checked
def postgres(  # noqa: PLR0913 - read and written
    name: str,
    *,
    url: str = "",
    key: str | Sequence[str] = (),
    by: str | None = None,
    schema: str | None = None,
    start: str | int | date = "earliest",
    lag: str | None = None,
    max_rows_per_trigger: int | None = None,
    tasks: int = 1,
    dead_letter: str | None = None,
    on_error: str | None = None,
    expect: Expected = None,
    create: bool = True,
    refresh: str | None = None,
    spot: Spot | None = None,
) -> Postgres:
    """Declares a PostgreSQL table: a source, a target as `into` of a flow, or with `refresh` a
    lookup.

    As a source it is read continuously, in the order of a column that grows.

    Args:
        name: The table's name, optionally with its schema.
        url: The connection string, without a password; or `"env:NAME"` for an environment variable
            with the whole string.
        key: Columns of the key. Sources use it to tell rows with equal `by` apart, targets to
            upsert.
        by: The column by which a source is read.
        schema: The columns of a source or lookup, if they are not those of the table.
        start: Where a source starts: `"earliest"`, `"latest"` or a value of `by`.
        lag: How far a source stays in the past, such as `"10s"`, so that transactions in progress
            can commit before the reader has passed their rows.
        max_rows_per_trigger: The maximum number of rows in one micro-batch.
        tasks: Number of Spark tasks that read a large micro-batch.
        dead_letter: A topic for rows that cannot be read or do not meet `expect`.
        on_error: What to do with such rows: `"fail"` (the default), `"drop"` or `"dead_letter"`
            (the default with `dead_letter`).
        expect: Conditions in Spark SQL that every row must meet, by name.
        create: Whether to create a target that does not exist.
        refresh: Makes the table a lookup that is read at the `"start"` of a run, or again after a
            duration such as `"10m"`.
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared table.

    Raises:
        PipelineError: An argument is invalid, or `url` contains a password.

    Example:
        ```python
        customers = mp.postgres("customers", url="env:SHOP_URL", by="updated_at", key="id")
        ```
    """
    spot = spot or caller()
    if not str(name).strip():
        raise pipeline_error(spot, "a table needs a name")
    if not url.startswith("env:") and _has_password(url):
        raise pipeline_error(
            spot,
            "a pipeline must not contain a password; use PGPASSWORD, PGPASSFILE or PGSERVICE, "
            "or url 'env:NAME' for a variable with the whole url",
        )
    check_whole(spot, tasks=tasks, max_rows_per_trigger=max_rows_per_trigger)
    try:
        lag_ms = 0 if lag is None else duration_ms(lag)
    except OptionError as error:
        raise pipeline_error(spot, f"lag {error}") from None
    return Postgres(
        name=name,
        spot=spot,
        url=url,
        key=(key,) if isinstance(key, str) else tuple(key),
        by=by,
        schema=schema,
        start=start.isoformat() if isinstance(start, datetime) else str(start),
        lag_ms=lag_ms,
        max_rows_per_trigger=max_rows_per_trigger,
        tasks=tasks,
        dead_letter=dead_letter,
        on_error=on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
        create=create,
        is_lookup=refresh is not None,
        refresh_ms=None if refresh is None else refresh_of(refresh, spot),
    )


def _has_password(url: str) -> bool:
    """Checks both forms of libpq's connection strings."""
    if "://" not in url:
        return bool(re.search(r"\bpassword\s*=", url))
    parts = urlsplit(url)
    return bool(parts.password) or "password=" in parts.query
