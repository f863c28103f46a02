"""Avro values. The library is fastavro."""

import io
import json
from typing import Any

from moldau.client.schemas.registry import Schema, SchemaError, SchemaRegistry
from moldau.client.schemas.wire import (
    HEAD_BYTES,
    Registration,
    SubjectNaming,
    missing_extra,
    schema_id_of,
    wrong_value,
)


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise missing_extra("fastavro", "avro") from error
    return fastavro


class AvroSerializer:
    """Serializes values in Avro, a dict for each record.

    Use it as `Producer(value_serializer=AvroSerializer(registry, schema))`.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str,
        *,
        is_key: bool = False,
        auto_register: bool = True,
        subject: SubjectNaming | None = None,
    ) -> None:
        """Checks the schema. The first record registers it.

        Args:
            registry: The registry that keeps the schema.
            schema: The Avro schema, in JSON.
            is_key: Whether keys are serialized, which determines the subject.
            auto_register: Whether to register a missing schema. If not, a missing schema is an
                error.
            subject: A function of a topic and `is_key` that names the subject; `topic_subject` if
                it is None.

        Raises:
            SchemaError: The schema is not valid.
            ConfigError: The package fastavro is not installed.
        """
        self._fastavro = _fastavro()
        try:
            self._parsed = self._fastavro.parse_schema(json.loads(schema))
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise SchemaError(f"not an Avro schema: {error}") from None
        self._schema = Schema(schema)
        self._registration = Registration(
            registry, is_key=is_key, auto_register=auto_register, subject=subject
        )

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        out = io.BytesIO()
        out.write(self._registration.head_of(topic, self._schema))
        try:
            self._fastavro.schemaless_writer(out, self._parsed, value)
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None
        return out.getvalue()


class AvroDeserializer:
    """Deserializes Avro values.

    Use it as `Consumer(value_deserializer=AvroDeserializer(registry))`.
    """

    def __init__(self, registry: SchemaRegistry, schema: str | None = None) -> None:
        """Requests schemas when they are first needed.

        Args:
            registry: The registry that keeps the schemas.
            schema: The Avro schema to read all values with, by the rules of schema resolution;
                None reads each value with the schema it was written with.

        Raises:
            ConfigError: The package fastavro is not installed.
        """
        self._fastavro = _fastavro()
        self._registry = registry
        self._reader = None
        if schema is not None:
            self._reader = self._fastavro.parse_schema(json.loads(schema))
        self._writers: dict[int, Any] = {}

    def __call__(self, content: bytes) -> Any:
        schema_id = schema_id_of(content)
        if schema_id not in self._writers:
            self._writers[schema_id] = self._parsed(self._registry.schema(schema_id), {})
        source = io.BytesIO(content)
        source.seek(HEAD_BYTES)
        try:
            return self._fastavro.schemaless_reader(source, self._writers[schema_id], self._reader)
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None

    def _parsed(self, schema: Schema, named: dict[str, Any]) -> Any:
        for reference in schema.references:
            self._parsed(self._registry.referenced(reference), named)
        return self._fastavro.parse_schema(json.loads(schema.text), named)
