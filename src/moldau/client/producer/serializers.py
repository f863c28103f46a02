"""Serializers of keys and values: by name, by Kafka's class names, or functions of the user."""

import json
import struct
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

from moldau.client.errors import ClientError, ConfigError, did_you_mean

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
"""Topic and value -> bytes; None stays None."""

_JAVA = "org.apache.kafka.common.serialization."


# The serializer to suggest for a value of each type.
_FITTING = {str: "str", dict: "json", list: "json", tuple: "json", int: "json", float: "json"}
_FITTING |= {bool: "json", UUID: "UUIDSerializer", bytes: "bytes"}


def as_bytes(setting: str) -> Serializer:
    """The serializer that takes only bytes. `setting`: the name of the setting that would allow
    other types.
    """

    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytearray | memoryview | bytes):
            return bytes(value)
        raise _unfit(topic, value, "bytes", setting)

    return serialize


def _unfit(topic: str, value: Any, wanted: str, setting: str) -> ClientError:
    part, argument = setting.partition(".")[0], setting.replace(".", "_")
    fitting = _FITTING.get(type(value))
    advice = f"choose a {argument}" if fitting is None else f"set {argument}={fitting!r}"
    if wanted == "bytes":
        advice = f"encode it, or {advice}"
    return ClientError(
        f"{topic}: the {part} must be {wanted}, not {type(value).__name__}; {advice}"
    )


def _text(setting: str) -> Serializer:
    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise _unfit(topic, value, "str", setting)
        return value.encode()

    return serialize


def _json(setting: str) -> Serializer:
    part = setting.partition(".")[0]

    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ClientError(f"{topic}: the {part} cannot be JSON: {error}") from None

    return serialize


def _fixed(form: str) -> Callable[[str], Serializer]:
    packed = struct.Struct(form)

    def serializer(setting: str) -> Serializer:
        part = setting.partition(".")[0]

        def serialize(topic: str, value: Any) -> bytes | None:
            if value is None:
                return None
            try:
                return packed.pack(value)
            except struct.error as error:
                raise ClientError(f"{topic}: {part} {value!r}: {error}") from None

        return serialize

    return serializer


def _uuid(setting: str) -> Serializer:
    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None or isinstance(value, UUID):
            return None if value is None else str(value).encode()
        raise _unfit(topic, value, "UUID", setting)

    return serialize


_NAMED: dict[str, Callable[[str], Serializer]] = {
    "bytes": as_bytes,
    "str": _text,
    "json": _json,
    # Kafka's classes, with or without their package.
    "ByteArraySerializer": as_bytes,
    "BytesSerializer": as_bytes,
    "ByteBufferSerializer": as_bytes,
    "StringSerializer": _text,
    "ShortSerializer": _fixed(">h"),
    "IntegerSerializer": _fixed(">i"),
    "LongSerializer": _fixed(">q"),
    "FloatSerializer": _fixed(">f"),
    "DoubleSerializer": _fixed(">d"),
    "UUIDSerializer": _uuid,
}


def serializer_of(choice: Any, setting: str) -> Serializer | None:
    """The serializer for a name, or for a function of a value or of topic and value. Returns None
    if only bytes are taken.
    """
    if choice is None:
        return None
    if isinstance(choice, str):
        name = choice.removeprefix(_JAVA)
        if name not in _NAMED:
            raise ConfigError(
                f"{setting}={choice}: known are bytes, str, json, any function, and the "
                f"serializers of moldau.schemas{did_you_mean(choice, _NAMED)}"
            )
        return None if _NAMED[name] is as_bytes else _NAMED[name](setting)
    if not callable(choice):
        raise ConfigError(f"{setting} must be a name or a function")
    return _checked(choice, setting)


def _checked(function: Callable[..., Any], setting: str) -> Serializer:
    takes_topic = _arity(function) >= 2

    def serialize(topic: str, value: Any) -> bytes | None:
        made = function(topic, value) if takes_topic else function(value)
        if made is None or type(made) is bytes:
            return made
        if isinstance(made, bytearray | memoryview | bytes):
            return bytes(made)
        raise ClientError(f"{setting} returned a {type(made).__name__}, not bytes")

    return serialize


def _arity(function: Callable[..., Any]) -> int:
    from inspect import Parameter, signature

    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    return sum(item.kind in kinds and item.default is Parameter.empty for item in parameters)
