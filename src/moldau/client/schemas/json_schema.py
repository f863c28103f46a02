"""JSON values that a JSON Schema describes. The library is jsonschema."""

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

_KIND = "JSON"


def _validator(text: str) -> Any:
    try:
        from jsonschema import validators
    except ImportError as error:
        raise missing_extra("jsonschema", "json-schema") from error
    try:
        schema = json.loads(text)
        kind = validators.validator_for(schema)
        kind.check_schema(schema)
    except Exception as error:  # noqa: BLE001 - the library raises all sorts
        raise SchemaError(f"not a JSON Schema: {str(error).splitlines()[0]}") from None
    return kind(schema)


class JsonSchemaSerializer:
    """Serializes values in JSON, after checking them against a JSON Schema."""

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
            schema: The JSON Schema.
            is_key: Whether keys are serialized, which determines the subject.
            auto_register: Whether to register a missing schema. If not, a missing schema is an
                error.
            subject: A function of a topic and `is_key` that names the subject; `topic_subject` if
                it is None.

        Raises:
            SchemaError: The schema is not valid.
            ConfigError: The package jsonschema is not installed.
        """
        self._validator = _validator(schema)
        self._schema = Schema(schema, _KIND)
        self._registration = Registration(
            registry, is_key=is_key, auto_register=auto_register, subject=subject
        )

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            self._validator.validate(value)
            content = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None
        return self._registration.head_of(topic, self._schema) + content


class JsonSchemaDeserializer:
    """Deserializes JSON values, and checks them against the schema they were written with."""

    def __init__(self, registry: SchemaRegistry) -> None:
        """Requests schemas when they are first needed.

        Args:
            registry: The registry that keeps the schemas.
        """
        self._registry = registry
        self._validators: dict[int, Any] = {}

    def __call__(self, content: bytes) -> Any:
        schema_id = schema_id_of(content)
        if schema_id not in self._validators:
            self._validators[schema_id] = _validator(self._registry.schema(schema_id).text)
        try:
            value = json.loads(content[HEAD_BYTES:])
            self._validators[schema_id].validate(value)
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None
        return value
