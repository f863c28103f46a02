"""Debezium's change events: `before`, `after` and `op`, with or without an enclosing schema. An
event yields the row after the change or, for a deletion, the row before it.
"""

from typing import Any

from pyspark.sql import functions as sql

from moldau.core.connectors.postgres_sql import DELETED

_OPERATIONS = ("c", "r", "u", "d")


def event_schema(row: str, corrupt: str) -> str:
    """The columns of an event, for a table with the columns `row`. Events with a schema have their
    fields in `payload`.
    """
    kind = f"STRUCT<{_nested(row)}>"
    event = f"before: {kind}, after: {kind}, op: STRING, ts_ms: BIGINT"
    return (
        f"payload STRUCT<{event}>, before {kind}, after {kind}, op STRING, ts_ms BIGINT, "
        f"{corrupt} STRING"
    )


def _nested(row: str) -> str:
    from pyspark.sql.types import StructType

    # The inside of `struct<…>`: names and types.
    return str(StructType.fromDDL(row).simpleString())[len("struct<") : -1]


def event_field(parsed: str, name: str) -> Any:
    """A field of the event, in `payload` or at the top."""
    return sql.when(
        sql.col(f"{parsed}.payload").isNotNull(), sql.col(f"{parsed}.payload.{name}")
    ).otherwise(sql.col(f"{parsed}.{name}"))


def event_row(parsed: str) -> Any:
    is_deleted = event_field(parsed, "op") == "d"
    before, after = event_field(parsed, "before"), event_field(parsed, "after")
    return sql.when(is_deleted, before).otherwise(after)


def event_columns(parsed: str, names: list[str], event_fields: tuple[str, ...]) -> list[Any]:
    """The columns that a flow sees: those of the row, `_deleted`, and fields of the event."""
    row = event_row(parsed)
    columns = [row.getField(name).alias(name) for name in names]
    columns.append((event_field(parsed, "op") == "d").alias(DELETED))
    return columns + [event_field(parsed, name).alias(f"_{name}") for name in event_fields]


def event_error(parsed: str, corrupt: str, schema: str) -> Any:
    """The error of an event, or null."""
    op = event_field(parsed, "op")
    is_bad = sql.col(parsed).isNull() | sql.col(f"{parsed}.{corrupt}").isNotNull()
    return (
        sql.when(is_bad, sql.lit(f"the value is not a change event of the columns {schema}"))
        .when(op.isNull(), sql.lit("the value is not a change event: it has no op"))
        .when(
            ~op.isin(*_OPERATIONS),
            sql.concat(sql.lit("a change event that concerns no row: op "), op),
        )
        .when(
            (op == "d") & event_row(parsed).isNull(),
            sql.lit("a deletion without the row before it: the table needs a REPLICA IDENTITY"),
        )
        .when(event_row(parsed).isNull(), sql.lit("a change event without the row after it"))
    )
