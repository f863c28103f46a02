"""Converts values in Confluent's wire format inside Spark's tasks: to JSON text and from rows. It
runs Python for each value, and is about ten times slower than plain JSON.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from importlib import import_module
from typing import Any, NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from moldau.client.schemas.avro import AvroDeserializer, AvroSerializer
from moldau.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from moldau.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from moldau.client.schemas.registry import SchemaError, SchemaRegistry
from moldau.core.pipelines.graph import FormatKind
from moldau.protocol.errors import MoldauError

_KEPT_MAX = 32
_PROTOBUF_TIME = "google.protobuf.Timestamp"
_kept: dict[Any, Any] = {}


class RegistryFormat(NamedTuple):
    kind: FormatKind
    registry: str
    written: str
    """The schema to write with, or `module:Message` of protobuf."""


class ToJson:
    """The function of a UDF: returns (JSON text, None) or (None, error)."""

    def __init__(self, form: RegistryFormat) -> None:
        self._form = form

    def __call__(self, content: bytes | bytearray | None) -> tuple[str | None, str | None]:
        if content is None:
            return None, None
        read = _shared_by_process(self._form, "read", _reader)
        try:
            return json.dumps(read(bytes(content)), default=_as_json), None
        except SchemaError as error:
            return None, str(error)


class FromRow:
    """The function of a UDF: encodes a struct. A row that does not fit the schema fails the task.
    `kind` is the struct's type, which distinguishes timestamps with and without a zone.
    """

    def __init__(self, form: RegistryFormat, topic: str, kind: DataType) -> None:
        self._form = form
        self._topic = topic
        self._kind = kind

    def __call__(self, row: Any) -> bytes | None:
        if row is None:
            return None
        write = _shared_by_process(self._form, "write", _writer)
        written: bytes | None = write(self._topic, _with_zones(row.asDict(True), self._kind))
        return written


def message_class(name: str) -> type:
    """Raises MoldauError."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise MoldauError(
            f"message '{name}' cannot be imported: {error}; write package.module_pb2:Message"
        ) from None
    assert isinstance(found, type)
    return found


def _shared_by_process(
    form: RegistryFormat, use: str, make: Callable[[RegistryFormat], Any]
) -> Any:
    """The reader or writer that this process shares: Spark uses a process for many tasks."""
    key = (form, use)
    if key not in _kept:
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        _kept[key] = make(form)
    return _kept[key]


def _reader(form: RegistryFormat) -> Callable[[bytes], Any]:
    match form.kind:
        case FormatKind.AVRO:
            return AvroDeserializer(SchemaRegistry(form.registry))
        case FormatKind.PROTOBUF:
            read = ProtobufDeserializer(message_class(form.written))
            return lambda content: _plain(read(content))
        case _:
            return JsonSchemaDeserializer(SchemaRegistry(form.registry))


def _writer(form: RegistryFormat) -> Callable[[str, dict[str, Any]], bytes | None]:
    registry = SchemaRegistry(form.registry)
    match form.kind:
        case FormatKind.AVRO:
            return AvroSerializer(registry, form.written)
        case FormatKind.PROTOBUF:
            from google.protobuf.json_format import ParseDict

            kind = message_class(form.written)
            write = ProtobufSerializer(registry, kind)
            return lambda topic, row: write(topic, ParseDict(_json_row(row), kind()))
        case _:
            json_writer = JsonSchemaSerializer(registry, form.written)
            return lambda topic, row: json_writer(topic, _json_row(row))


def _with_zones(value: Any, kind: DataType) -> Any:
    """Adds time zones. Spark passes timestamps to Python as local time of the machine, regardless
    of the session's zone.
    """
    match kind:
        case _ if value is None:
            return None
        case TimestampType():
            return value.astimezone(UTC)
        case StructType():
            return {one.name: _with_zones(value[one.name], one.dataType) for one in kind.fields}
        case ArrayType():
            return [_with_zones(one, kind.elementType) for one in value]
        case MapType():
            return {
                _with_zones(key, kind.keyType): _with_zones(one, kind.valueType)
                for key, one in value.items()
            }
        case _:
            return value


def _plain(message: Any) -> Any:
    """The message as dicts. The library's own conversion would turn large numbers into text."""
    if message.DESCRIPTOR.full_name == _PROTOBUF_TIME:
        return message.ToDatetime(UTC)
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if hasattr(value, "DESCRIPTOR"):
            found[field.name] = _plain(value)
        elif hasattr(value, "items"):
            found[field.name] = {
                str(key): _plain(one) if hasattr(one, "DESCRIPTOR") else one
                for key, one in value.items()
            }
        elif isinstance(value, str | bytes | int | float | bool):
            found[field.name] = value
        else:
            found[field.name] = [
                _plain(one) if hasattr(one, "DESCRIPTOR") else one for one in value
            ]
    return found


def _json_row(row: dict[str, Any]) -> Any:
    known = {name: value for name, value in row.items() if value is not None}
    return json.loads(json.dumps(known, default=_as_json))


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)
