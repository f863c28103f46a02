"""The protocol facts as this suite reads them: with its own small reader, so that a mistake in the
generator cannot hide itself here."""

import base64
import json
import math
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from interop.apache import ROOT

from moldau.protocol.wire.schema import Struct as OurStruct

# Removed in Apache Kafka 4.0: the facts keep their numbers, but no version is valid.
WITHOUT_VERSIONS = frozenset(
    f"{name}{side}"
    for name in ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
    for side in ("Request", "Response")
)
VERSION_MAX = 32767
INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def parse_versions(text: str | None) -> range:
    """`3+`, `0-4`, `2` or `none`."""
    if text is None or text == "none":
        return range(0)
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
    if match is None:
        raise ValueError(f"not a range of versions: {text}")
    first = int(match[1])
    if match[2] is None:
        return range(first, first + 1)
    last = VERSION_MAX if match[2] == "+" else int(match[3])
    return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure."""

    name: str
    element: str
    is_array: bool
    versions: range
    nullable: range
    tagged: range
    ignorable: bool
    default: str | None
    struct: "Struct | None"

    @property
    def json_name(self) -> str:
        return self.name[0].lower() + self.name[1:]

    def default_value(self) -> Any:
        """The value after reading a version that lacks the field."""
        if self.default == "null":
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return STRUCT_DEFAULT
        if self.element in INTEGER_RANGES:
            return int(self.default or "0", 0)
        if self.element == "bool":
            return self.default == "true"
        if self.element == "float64":
            return float(self.default or 0)
        if self.element == "string":
            return self.default or ""
        return bytes(16) if self.element == "uuid" else b""


class _StructDefault:
    """Represents a structure whose fields are all at their defaults."""


STRUCT_DEFAULT = _StructDefault()


@dataclass(frozen=True, slots=True)
class Struct:
    """A message or a structure inside one."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """One row of the facts."""

    name: str
    kind: str
    versions: range
    flexible: range
    struct: Struct = field(repr=False)


def _struct(name: str, rows: list[dict[str, Any]], common: dict[str, Any]) -> Struct:
    return Struct(name, tuple(_field(row, common) for row in rows))


def _field(row: dict[str, Any], common: dict[str, Any]) -> Field:
    element = row["type"].removeprefix("[]")
    struct = None
    if element[0].isupper():
        struct = _struct(element, row.get("fields") or common[element], common)
    return Field(
        name=row["name"],
        element=element,
        is_array=row["type"].startswith("[]"),
        versions=parse_versions(row.get("versions", row.get("taggedVersions"))),
        nullable=parse_versions(row.get("nullableVersions")),
        tagged=parse_versions(row.get("taggedVersions")),
        ignorable=bool(row.get("ignorable", False)),
        default=None if row.get("default") is None else str(row["default"]).lower(),
        struct=struct,
    )


@cache
def all_messages() -> tuple[MessageFacts, ...]:
    """Every row of protocol/messages.json, including those without versions."""
    rows = json.loads((ROOT / "protocol" / "messages.json").read_text(encoding="utf-8"))
    messages = []
    for row in rows:
        common = {each["name"]: each["fields"] for each in row.get("commonStructs", [])}
        messages.append(
            MessageFacts(
                name=row["name"],
                kind=row["type"],
                versions=parse_versions(row["validVersions"]),
                flexible=parse_versions(row.get("flexibleVersions")),
                struct=_struct(row["name"], row.get("fields", []), common),
            )
        )
    return tuple(messages)


def live_messages() -> tuple[MessageFacts, ...]:
    """Every message that has at least one valid version."""
    return tuple(message for message in all_messages() if message.versions)


def attribute_of(owner: type[OurStruct], field_name: str) -> str:
    """The attribute of one of our classes for a field: the same letters in snake case."""
    letters = field_name.lower()
    for row in owner.FIELDS:
        if row[0].replace("_", "") == letters:
            return row[0]
    raise AssertionError(f"{owner.__name__} has no attribute for {field_name}")


def json_view(struct: Struct, message: Any, version: int, *, for_writing: bool) -> dict[str, Any]:
    """Our object as Apache's converters would print it.

    For writing, fields at their defaults are included, even those that the version lacks if JSON
    can represent them: then Apache must agree that they are defaults, or the bytes differ.
    """
    view: dict[str, Any] = {}
    for each in struct.fields:
        value = getattr(message, attribute_of(type(message), each.name))
        present = version in each.versions
        if for_writing:
            if not present and (each.is_array or each.struct is not None or value is None):
                continue
        elif not present or (version in each.tagged and _is_default(each, value, version)):
            continue
        elif each.element == "records" and value is not None:
            # Apache prints the size in place of the content.
            view[f"{each.json_name}SizeInBytes"] = len(value)
            continue
        view[each.json_name] = _json_value(each, value, version, for_writing=for_writing)
    return view


def _is_default(each: Field, value: Any, version: int) -> bool:
    default = each.default_value()
    if default is STRUCT_DEFAULT:
        assert each.struct is not None
        if value is None:
            return False
        return all(
            _is_default(inner, getattr(value, attribute_of(type(value), inner.name)), version)
            for inner in each.struct.fields
        )
    return bool(value == default)


def _json_value(each: Field, value: Any, version: int, *, for_writing: bool) -> Any:
    if value is None:
        return None
    if each.is_array:
        return [_json_element(each, item, version, for_writing=for_writing) for item in value]
    return _json_element(each, value, version, for_writing=for_writing)


def _json_element(each: Field, value: Any, version: int, *, for_writing: bool) -> Any:
    if each.struct is not None:
        return json_view(each.struct, value, version, for_writing=for_writing)
    if each.element == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if each.element in {"bytes", "records"}:
        return base64.b64encode(value).decode()
    if each.element == "float64" and not math.isfinite(value):
        # Jackson prints these as strings.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
