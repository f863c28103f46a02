"""Values that are Protobuf messages of generated classes."""

import base64
from typing import Any

from moldau.client.schemas.registry import Reference, Schema, SchemaError, SchemaRegistry
from moldau.client.schemas.wire import (
    HEAD_BYTES,
    Registration,
    SubjectNaming,
    missing_extra,
    schema_id_of,
    wrong_value,
)

_KIND = "PROTOBUF"
# Every registry has these.
_KNOWN = "google/protobuf/"
_INDEXES_MAX = 100


class ProtobufSerializer:
    """Of messages of one generated class."""

    def __init__(
        self,
        registry: SchemaRegistry,
        message_class: type,
        *,
        is_key: bool = False,
        auto_register: bool = True,
        subject: SubjectNaming | None = None,
    ) -> None:
        descriptor = _descriptor(message_class)
        self._class = message_class
        self._registry = registry
        self._file = descriptor.file
        self._indexes = _encoded_indexes(_place_of(descriptor))
        self._schema: Schema | None = None
        self._registration = Registration(
            registry, is_key=is_key, auto_register=auto_register, subject=subject
        )

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, self._class):
            raise SchemaError(f"a {type(value).__name__} is no {self._class.__name__}")
        if self._schema is None:
            self._schema = self._registered(self._file)
        try:
            content: bytes = value.SerializeToString()  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None
        return self._registration.head_of(topic, self._schema) + self._indexes + content

    def _registered(self, file: Any) -> Schema:
        """With everything that it imports, under the names of the files."""
        references = []
        for needed in file.dependencies:
            if needed.name.startswith(_KNOWN):
                continue
            schema = self._registered(needed)
            self._registry.register(needed.name, schema)
            version = self._registry.version(needed.name, schema)
            references.append(Reference(needed.name, needed.name, version))
        text = base64.b64encode(file.serialized_pb).decode()
        return Schema(text, _KIND, tuple(references))


class ProtobufDeserializer:
    """To messages of one generated class; the place of the message in its file must be its own."""

    def __init__(self, message_class: type) -> None:
        self._place = _place_of(_descriptor(message_class))
        self._class = message_class

    def __call__(self, content: bytes) -> Any:
        schema_id_of(content)
        place, start = _decoded_indexes(content, HEAD_BYTES)
        if place != self._place:
            raise SchemaError(
                f"the value is another message of its file than {self._class.__name__}"
            )
        message = self._class()
        try:
            message.ParseFromString(content[start:])
        except Exception as error:  # noqa: BLE001 - the library raises all sorts
            raise wrong_value(error) from None
        return message


def _descriptor(message_class: Any) -> Any:
    try:
        from google.protobuf.message import Message
    except ImportError as error:
        raise missing_extra("protobuf", "protobuf") from error
    if not isinstance(message_class, type) or not issubclass(message_class, Message):
        raise SchemaError(f"{message_class!r} is no class that protoc generated")
    descriptor: Any = getattr(message_class, "DESCRIPTOR")  # noqa: B009 - known to the library only
    return descriptor


def _place_of(descriptor: Any) -> list[int]:
    """Which message of its file, from the outside in."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer else descriptor.file.message_types_by_name.values()
        path.insert(0, [one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    return path


def _encoded_indexes(place: list[int]) -> bytes:
    """The first message of a file, the usual case, is a single zero."""
    if place == [0]:
        return b"\x00"
    return b"".join(_varint(number) for number in [len(place), *place])


def _varint(number: int) -> bytes:
    raw = number << 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _decoded_indexes(content: bytes, start: int) -> tuple[list[int], int]:
    count, start = _read_varint(content, start)
    if count == 0:
        return [0], start
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError("the value does not say which message it is")
    place = []
    for _ in range(count):
        number, start = _read_varint(content, start)
        place.append(number)
    return place, start


def _read_varint(content: bytes, start: int) -> tuple[int, int]:
    raw = shift = 0
    while start < len(content) and shift < 35:
        octet = content[start]
        start += 1
        raw |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return raw >> 1 ^ -(raw & 1), start
    raise SchemaError("the value ends too early")
