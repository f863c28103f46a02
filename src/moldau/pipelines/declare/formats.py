"""Formats of record values, for `format=` of sources and targets."""

from collections.abc import Mapping
from typing import Any

from moldau.core.pipelines.graph import Format, FormatKind
from moldau.pipelines.declare.calls import checked


@checked
def json(schema: str | None = None, **options: str) -> Format:
    """Declares a format: values that are JSON objects.

    Args:
        schema: The columns, as in `"id BIGINT, user STRING"`. Required for reading.
        **options: Options of Spark's `from_json` (reading) or `to_json` (writing).

    Returns:
        A format for `mp.topic` or `mp.http`.
    """
    return Format(FormatKind.JSON, schema, pairs_of(options))


@checked
def csv(schema: str | None = None, **options: str) -> Format:
    """Declares a format: values that are lines of CSV.

    Args:
        schema: The columns, as in `"id BIGINT, user STRING"`. Required for reading.
        **options: Options of Spark's `from_csv` (reading) or `to_csv` (writing).

    Returns:
        A format for `mp.topic` or `mp.http`.
    """
    return Format(FormatKind.CSV, schema, pairs_of(options))


@checked
def debezium(schema: str | None = None, **options: str) -> Format:
    """Declares a format: values that are Debezium change events in JSON. For reading.

    A flow gets the row after the change, or before a deletion, and a column `_deleted`.

    Args:
        schema: The columns of the table's rows, as in `"id BIGINT, user STRING"`.
        **options: Options of Spark's `from_json`.

    Returns:
        A format for `mp.topic`.
    """
    return Format(FormatKind.DEBEZIUM, schema, pairs_of(options))


@checked
def text() -> Format:
    """Declares a format: values that are text.

    Returns:
        A format with the single column `value`, a STRING.
    """
    return Format(FormatKind.TEXT)


@checked
def bytes() -> Format:  # noqa: A001 - used as mp.bytes()
    """Declares a format: values that are passed on unchanged.

    Returns:
        A format with the single column `value`, a BINARY.
    """
    return Format(FormatKind.BYTES)


@checked
def avro(registry: str, schema: str | None = None, *, avro_schema: str | None = None) -> Format:
    """Declares a format: values in Avro with a schema registry, in Confluent's wire format.

    Args:
        registry: The registry's address, as in `"http://localhost:8081"`.
        schema: The columns that flows see. Required for reading.
        avro_schema: The Avro schema, as JSON text. Required for writing.

    Returns:
        A format for `mp.topic`.
    """
    return _registered(FormatKind.AVRO, registry, schema, avro_schema)


@checked
def json_schema(
    registry: str, schema: str | None = None, *, json_schema: str | None = None
) -> Format:
    """Declares a format: values in JSON with a schema registry, in Confluent's wire format.

    Args:
        registry: The registry's address, as in `"http://localhost:8081"`.
        schema: The columns that flows see. Required for reading.
        json_schema: The JSON Schema, as text. Required for writing.

    Returns:
        A format for `mp.topic`.
    """
    return _registered(FormatKind.JSON_SCHEMA, registry, schema, json_schema)


@checked
def protobuf(registry: str, schema: str | None = None, *, message: str = "") -> Format:
    """Declares a format: values in Protobuf with a schema registry, in Confluent's wire format.

    Args:
        registry: The registry's address, as in `"http://localhost:8081"`.
        schema: The columns that flows see. Required for reading.
        message: The generated class, as `"package.module_pb2:Message"`. Tasks must be able to
            import it.

    Returns:
        A format for `mp.topic`.
    """
    return _registered(FormatKind.PROTOBUF, registry, schema, message)


def _registered(kind: FormatKind, registry: str, schema: str | None, written: str | None) -> Format:
    return Format(kind, schema, (("registry", registry), ("written", written or "")))


def pairs_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in options.items())
