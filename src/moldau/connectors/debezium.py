"""Debezium's change events: `before`, `after`, `op`, with or without their schema around them. A
row is what is there after the change or, deleted, what was there before.
"""

from typing import Any

from pyspark.sql import functions as sql

from moldau.core.connectors.postgres_sql import DELETED

_OPERATIONS = ("c", "r", "u", "d")


def event_schema(row: str, corrupt: str) -> str:
    """Events with their schema have all of it in `payload`. `row`: the table's columns."""
    kind = f"STRUCT<{_nested(row)}>"
    event = f"before: {kind}, after: {kind}, op: STRING, ts_ms: BIGINT"
    return (
        f"payload STRUCT<{event}>, before {kind}, after {kind}, op STRING, ts_ms BIGINT, "
        f"{corrupt} STRING"
    )


def _nested(row: str) -> str:
    from pyspark.sql.types import StructType

    # `struct<…>` without its word: names and kinds as a struct wants them.
    return str(StructType.fromDDL(row).simpleString())[len("struct<") : -1]


def event_field(parsed: str, name: str) -> Any:
    """Of the event, wherever it is."""
    return sql.when(
        sql.col(f"{parsed}.payload").isNotNull(), sql.col(f"{parsed}.payload.{name}")
    ).otherwise(sql.col(f"{parsed}.{name}"))


def event_row(parsed: str) -> Any:
    is_gone = event_field(parsed, "op") == "d"
    return sql.when(is_gone, event_field(parsed, "before")).otherwise(event_field(parsed, "after"))


def event_columns(parsed: str, names: list[str], wanted: tuple[str, ...]) -> list[Any]:
    """What a flow sees: the row's columns, whether it is gone, and what was asked for."""
    row = event_row(parsed)
    found = [row.getField(name).alias(name) for name in names]
    found.append((event_field(parsed, "op") == "d").alias(DELETED))
    return found + [event_field(parsed, name).alias(f"_{name}") for name in wanted]


def event_error(parsed: str, corrupt: str, schema: str) -> Any:
    """What is wrong with an event, or null."""
    op = event_field(parsed, "op")
    is_bad = sql.col(parsed).isNull() | sql.col(f"{parsed}.{corrupt}").isNotNull()
    return (
        sql.when(is_bad, sql.lit(f"the value is no change event of the columns {schema}"))
        .when(op.isNull(), sql.lit("the value is no change event: it has no op"))
        .when(
            ~op.isin(*_OPERATIONS),
            sql.concat(sql.lit("a change event that is of no row: op "), op),
        )
        .when(
            (op == "d") & event_row(parsed).isNull(),
            sql.lit("a deletion does not say of what: its table needs a REPLICA IDENTITY"),
        )
        .when(event_row(parsed).isNull(), sql.lit("a change event without the row after it"))
    )
