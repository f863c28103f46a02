"""Formats of values, as users write them."""

from collections.abc import Mapping
from typing import Any

from moldau.core.pipelines.graph import Format, FormatKind
from moldau.pipelines.declare.calls import checked


@checked
def json(schema: str | None = None, **options: str) -> Format:
    """One JSON object in each value; options as those of Spark's from_json and to_json."""
    return Format(FormatKind.JSON, schema, pairs_of(options))


@checked
def csv(schema: str | None = None, **options: str) -> Format:
    """One line of CSV in each value; options as those of Spark's from_csv and to_csv."""
    return Format(FormatKind.CSV, schema, pairs_of(options))


@checked
def debezium(schema: str | None = None, **options: str) -> Format:
    """Debezium's change events in JSON; the schema is that of the table's rows."""
    return Format(FormatKind.DEBEZIUM, schema, pairs_of(options))


@checked
def text() -> Format:
    """The column `value`, a STRING."""
    return Format(FormatKind.TEXT)


@checked
def bytes() -> Format:  # noqa: A001 - used as mp.bytes()
    """The column `value`, as it is."""
    return Format(FormatKind.BYTES)


@checked
def avro(registry: str, schema: str | None = None, *, avro_schema: str | None = None) -> Format:
    """With a schema registry, in Confluent's wire format. `avro_schema` is for writing."""
    return _registered(FormatKind.AVRO, registry, schema, avro_schema)


@checked
def json_schema(
    registry: str, schema: str | None = None, *, json_schema: str | None = None
) -> Format:
    """JSON behind a schema id, in Confluent's wire format. `json_schema` is for writing."""
    return _registered(FormatKind.JSON_SCHEMA, registry, schema, json_schema)


@checked
def protobuf(registry: str, schema: str | None = None, *, message: str = "") -> Format:
    """`message`: `package.module:Message`, a generated class that the tasks can import."""
    return _registered(FormatKind.PROTOBUF, registry, schema, message)


def _registered(kind: FormatKind, registry: str, schema: str | None, written: str | None) -> Format:
    return Format(kind, schema, (("registry", registry), ("written", written or "")))


def pairs_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in options.items())
