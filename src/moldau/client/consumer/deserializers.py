"""Deserializers of keys and values: by name, by Kafka's class names, or functions of the user."""

import json
import struct
import uuid
from collections.abc import Callable
from typing import Any

from moldau.client.errors import ConfigError, did_you_mean

Deserializer = Callable[[bytes], Any]


def _fixed(form: str) -> Deserializer:
    packed = struct.Struct(form)

    def read(content: bytes) -> Any:
        (value,) = packed.unpack(content)
        return value

    return read


def _uuid(content: bytes) -> uuid.UUID:
    return uuid.UUID(content.decode())


def _text(content: bytes) -> str:
    return content.decode()


_BY_NAME: dict[str, Deserializer | None] = {
    "bytes": None,
    "str": _text,
    "json": json.loads,
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "StringDeserializer": _text,
    "ShortDeserializer": _fixed(">h"),
    "IntegerDeserializer": _fixed(">i"),
    "LongDeserializer": _fixed(">q"),
    "FloatDeserializer": _fixed(">f"),
    "DoubleDeserializer": _fixed(">d"),
    "UUIDDeserializer": _uuid,
}


def deserializer(setting: str, value: Any) -> Deserializer | None:
    """The function for a setting; None leaves bytes as they are. Raises ConfigError."""
    if value is None:
        return None
    if callable(value):
        own: Deserializer = value
        return own
    name = str(value).rsplit(".", 1)[-1]
    if name not in _BY_NAME:
        raise ConfigError(
            f"{setting}={value!r} is neither bytes, str, json nor a function of bytes"
            + did_you_mean(name, _BY_NAME)
        )
    return _BY_NAME[name]
