"""Values in JSON that a JSON Schema describes."""

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
        raise SchemaError(f"no JSON Schema: {str(error).splitlines()[0]}") from None
    return kind(schema)


class JsonSchemaSerializer:
    """Values as JSON that a schema allows, behind its id."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str,
        *,
        is_key: bool = False,
        auto_register: bool = True,
        subject: SubjectNaming | None = None,
    ) -> None:
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
    """Values are checked against the schema they were written with."""

    def __init__(self, registry: SchemaRegistry) -> None:
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
