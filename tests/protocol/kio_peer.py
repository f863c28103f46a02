"""kio as a second implementation: finds its class for one of ours and converts its messages to
ours.
"""

import dataclasses
import datetime as dt
import io
import uuid
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from moldau.protocol.wire.schema import Message, Struct, struct_named

MILLISECOND = dt.timedelta(milliseconds=1)
EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
KNOWN_CODES = st.sampled_from([int(code) for code in ErrorCode])
# The values that kio's types can represent.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "error_code": KNOWN_CODES,
    "timedelta_i64": st.integers(-(10**14), 10**14),
    # It converts times to floats, which shifts some by a millisecond; whole seconds survive.
    "datetime_i64": st.integers(0, 10**10).map(lambda seconds: seconds * 1000),
}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_SCHEMAS = {_plain(name): versions for name, versions in schema_name_map.items()}


def kio_class(message_class: type[Message], version: int) -> type[Any] | None:
    """None if kio lacks the message or the version."""
    name = message_class.__name__
    kind = EntityType.data
    for suffix, found in (("Request", EntityType.request), ("Response", EntityType.response)):
        if name.endswith(suffix):
            name, kind = name.removesuffix(suffix), found
    if name.endswith("Header"):
        kind = EntityType.header
    paths: dict[Any, str] = dict(_SCHEMAS.get(_plain(name), {}).get(version, {}))
    return resolve_name(paths[kind]) if kind in paths else None


@cache
def _fields(kio_struct: Any) -> dict[str, tuple[Any, Any]]:
    """By plain name: the field, and the class of the structures that it holds."""
    hints = get_type_hints(kio_struct)
    found: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(kio_struct):
        nested = [part for part in _parts(hints[field.name]) if dataclasses.is_dataclass(part)]
        found[_plain(field.name)] = (field, nested[0] if nested else None)
    return found


def _parts(hint: Any) -> list[Any]:
    return [hint, *(part for argument in get_args(hint) for part in _parts(argument))]


def _field(kio_struct: Any, name: str) -> tuple[Any, Any]:
    fields = _fields(kio_struct)
    plain = _plain(name)
    # kio has durations and times where the wire has milliseconds.
    return fields[plain] if plain in fields else fields[plain.removesuffix("ms")]


def restriction_of(
    message_class: type[Message], kio_message: type[Any]
) -> Callable[[type[Struct], str], st.SearchStrategy[Any] | None]:
    """Limits generated values to those that kio's types can represent."""
    pairs: dict[type[Struct], type[Any]] = {message_class: kio_message}

    def walk(ours: type[Struct], theirs: type[Any]) -> None:
        pairs[ours] = theirs
        for row in ours.FIELDS:
            try:
                _, nested = _field(theirs, row[0])
            except KeyError:
                continue
            if nested is not None:
                walk(struct_named(ours, row[1].removeprefix("[]")), nested)

    walk(message_class, kio_message)

    def restrict(ours: type[Struct], name: str) -> st.SearchStrategy[Any] | None:
        field, _ = _field(pairs[ours], name)
        return VALUES.get(field.metadata.get("kafka_type", ""))

    return restrict


def read(kio_message: type[Any], wire: bytes) -> Any:
    entity, size = entity_reader(kio_message)(wire, 0)
    assert size == len(wire)
    return entity


def write(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def to_ours(our_class: type[Struct], entity: Any) -> Any:
    """Every field that kio has; the others stay at their defaults."""
    values = {}
    for row in our_class.FIELDS:
        try:
            field, _ = _field(type(entity), row[0])
        except KeyError:
            continue
        values[row[0]] = _value(our_class, row[1], getattr(entity, field.name))
    return our_class(**values)


def _value(owner: type[Struct], wire_type: str, value: Any) -> Any:
    if wire_type.startswith("[]"):
        if value is None:
            return None
        return [_value(owner, wire_type[2:], element) for element in value]
    if dataclasses.is_dataclass(value):
        return to_ours(struct_named(owner, wire_type), value)
    if wire_type == "uuid":
        return bytes(16) if value is None else value.bytes
    if value is None and wire_type == "int64":
        return -1
    match value:
        case dt.timedelta():
            return value // MILLISECOND
        case dt.datetime():
            return (value - EPOCH) // MILLISECOND
        case uuid.UUID():
            return value.bytes
        case IntEnum():
            return int(value)
        case _:
            return value
