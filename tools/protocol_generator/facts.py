"""The facts as typed rows. Irregular facts are rejected here, so that rendering is simple."""

import json
import keyword
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.protocol_generator.secrets import SECRET_FIELDS

PRIMITIVES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "Uuid",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}
NEW = ()
"""The default of an array or a structure: a fresh empty one."""
ZERO_UUID = bytes(16)
NO_API_KEY = -1


@dataclass(frozen=True)
class Versions:
    """An inclusive range; `last` is None when it is open, `first` is None when it is empty."""

    first: int | None
    last: int | None

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(None, None)
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def overlaps(self, other: "Versions") -> bool:
        if self.first is None or other.first is None:
            return False
        return (self.last is None or self.last >= other.first) and (
            other.last is None or other.last >= self.first
        )


@dataclass(frozen=True)
class Field:
    name: str
    wire_name: str
    type: str
    versions: str
    nullable: str
    tag: int
    default: object
    ignorable: bool
    secret: bool
    never_compact: bool

    @property
    def element_type(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES and not self.is_array

    @property
    def is_nullable(self) -> bool:
        return self.nullable != "none"


@dataclass
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    name: str
    kind: str
    api_key: int
    valid: Versions
    flexible: Versions
    fields: list[Field]
    structs: list[Struct]


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


def load_messages(path: Path) -> list[Message]:
    return [_MessageReader(row).read() for row in json.loads(path.read_text(encoding="utf-8"))]


class _MessageReader:
    """Flattens the nested definition of one message into a list of structures."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.valid = Versions.parse(row["validVersions"])
        self.structs: list[Struct] = []

    def read(self) -> Message:
        row = self.row
        # Each structure is placed before its children: the order in which people read.
        fields = self._fields(row["name"], row.get("fields", []))
        for common in row.get("commonStructs", []):
            self._struct(common["name"], common["fields"])
        names = [struct.name for struct in self.structs]
        if len(names) != len(set(names)):
            raise ValueError(f"{row['name']}: a structure is defined twice")
        return Message(
            name=row["name"],
            kind=row["type"],
            api_key=row.get("apiKey", NO_API_KEY),
            valid=self.valid,
            flexible=Versions.parse(row.get("flexibleVersions", "none")),
            fields=fields,
            structs=self.structs,
        )

    def _struct(self, name: str, rows: list[dict[str, Any]]) -> None:
        struct = Struct(name)
        self.structs.append(struct)
        struct.fields = self._fields(name, rows)

    def _fields(self, owner: str, rows: list[dict[str, Any]]) -> list[Field]:
        return [self._field(owner, row) for row in rows]

    def _field(self, owner: str, row: dict[str, Any]) -> Field:
        if row.get("fields"):
            self._struct(row["type"].removeprefix("[]"), row["fields"])
        versions = row.get("versions") or row["taggedVersions"]
        if row.get("taggedVersions", versions) != versions:
            raise ValueError(f"{owner}.{row['name']}: tagged only in some of its versions")
        if row.get("flexibleVersions", "none") != "none":
            raise ValueError(f"{owner}.{row['name']}: flexible in some of its versions")
        nullable = row.get("nullableVersions", "none")
        if not Versions.parse(nullable).overlaps(self.valid):
            nullable = "none"
        return Field(
            name=snake_case(row["name"]),
            wire_name=row["name"],
            type=row["type"],
            versions=versions,
            nullable=nullable,
            tag=row.get("tag", -1),
            default=_default(row, nullable),
            ignorable=row.get("ignorable", False),
            secret=(self.row["name"], row["name"]) in SECRET_FIELDS,
            never_compact="flexibleVersions" in row,
        )


def _default(row: dict[str, Any], nullable: str) -> object:
    """A JSON null as default means "not given", as in the original generator; "null" is null."""
    kind = row["type"]
    given = row.get("default")
    if given == "null":
        if nullable == "none":
            raise ValueError(f"{row['name']}: null by default but never nullable")
        return None
    if kind == "records":
        return None if nullable != "none" else b""
    if kind.startswith("[]") or kind not in PRIMITIVES:
        return NEW
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "float64":
        return float(given or 0)
    if kind == "uuid":
        return ZERO_UUID
    if kind == "bytes":
        return b""
    if kind == "string":
        return given or ""
    return int(given, 0) if isinstance(given, str) else int(given or 0)
