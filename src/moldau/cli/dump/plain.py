"""Findings as lines: `PlainLines` prints them as Apache's kafka-dump-log does, so that scripts keep
working; `JsonLines` prints one object per line. Tables are in `tables.py`.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TextIO

from moldau.cli.dump.row_fields import (
    ROW_NAMES,
    fields_of,
    shown_bytes,
)
from moldau.cli.shared.escaping import json_text, printable
from moldau.storage.inspection.items import (
    BatchFound,
    Decoded,
    DirectoryEnd,
    DirectoryStart,
    FileEnd,
    FileKind,
    FileStart,
    Item,
    Problem,
    ProducerFound,
    PropertyFound,
    RecordFound,
    Remark,
    Row,
)

_OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
_MARKERS = frozenset({"ABORT", "COMMIT"})


class Renderer(Protocol):
    def show(self, item: Item) -> None: ...
    def close(self) -> None:
        """Print rows that are still held back."""


def shown_path(path: Path) -> str:
    """Relative if that is shorter: problems are read on one line."""
    try:
        return printable(str(path.relative_to(Path.cwd())))
    except ValueError:
        return printable(str(path))


def problem_line(problem: Problem) -> str:
    return f"problem: {_where(problem)}: {problem.what}; to do: {problem.remedy}"


def remark_line(remark: Remark) -> str:
    return f"note: {_where(remark)}: {remark.what}"


def _where(item: Problem | Remark) -> str:
    position = "" if item.position is None else f": position {item.position}"
    return shown_path(item.path) + position


class JsonLines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._file = ""

    def show(self, item: Item) -> None:
        self._out.write(json_text(self._object(item)) + "\n")

    def close(self) -> None:
        self._out.flush()

    def _object(self, item: Item) -> dict[str, Any]:
        match item:
            case FileStart():
                self._file = str(item.path)
                return {
                    "type": "file",
                    "file": self._file,
                    "kind": item.kind.value,
                    "size": item.size_bytes,
                    **_camel_keys(item.facts),
                }
            case FileEnd():
                return {
                    "type": "fileEnd",
                    "file": str(item.path),
                    **dict(item.counts),
                    "nextOffset": item.next_offset,
                    "problems": item.problems,
                }
            case DirectoryStart():
                self._file = str(item.path)
                head = {"type": "directory", "file": self._file, "kind": item.role}
                return head | _camel_keys(item.facts)
            case DirectoryEnd():
                total = fields_of(item.total) if item.total else {}
                return {
                    "type": "directoryEnd",
                    "file": str(item.path),
                    **total,
                    "problems": item.problems,
                }
            case Problem() | Remark():
                return _complaint_object(item)
            case PropertyFound():
                return {
                    "type": "property",
                    "file": self._file,
                    "name": item.name,
                    "value": item.value,
                }
            case _:
                return {"type": ROW_NAMES[type(item)], "file": self._file, **fields_of(item)}


def _complaint_object(item: Problem | Remark) -> dict[str, Any]:
    fields = {"file": str(item.path), "position": item.position, "what": item.what}
    if isinstance(item, Problem):
        return {"type": "problem", **fields, "toDo": item.remedy}
    return {"type": "note", **fields}


def _camel_keys(facts: Iterable[tuple[str, int | str]]) -> dict[str, int | str]:
    named: dict[str, int | str] = {}
    for name, fact in facts:
        head, *rest = name.replace(".", " ").split(" ")
        named[head + "".join(part.capitalize() for part in rest)] = fact
    return named


class PlainLines:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, item: Item) -> None:
        if isinstance(item, RecordFound):
            # Most of what a deep dump prints.
            self._out.write(_record_line(item) + "\n")
            return
        for line in self._lines(item):
            self._out.write(line + "\n")

    def close(self) -> None:
        self._out.flush()

    def _lines(self, item: Item) -> list[str]:
        match item:
            case FileStart():
                return [f"Dumping {shown_path(item.path)}", *_name_lines(item)]
            case FileEnd():
                is_index = item.kind is FileKind.OFFSET_INDEX
                is_empty = is_index and not dict(item.counts)["entries"]
                return [f"{shown_path(item.path)} is empty."] if is_empty else []
            case DirectoryStart():
                facts = "".join(f" {name}: {fact}" for name, fact in item.facts)
                return [f"Dumping {item.role} {shown_path(item.path)}{facts}"]
            case DirectoryEnd():
                return [] if item.total is None else [row_line(item.total)]
            case Problem():
                return [problem_line(item)]
            case Remark():
                return [remark_line(item)]
            case _:
                return [row_line(item)]


def _name_lines(start: FileStart) -> list[str]:
    facts = dict(start.facts)
    if start.kind is FileKind.LOG and "base offset" in facts:
        return [f"Log starting offset: {facts['base offset']}"]
    if start.kind is FileKind.METADATA_SNAPSHOT:
        if "end offset" in facts:
            return [f"Snapshot end offset: {facts['end offset']}, epoch: {facts['epoch']}"]
        return ["KRaft bootstrap snapshot"]
    if start.kind in {FileKind.LOCK, FileKind.RESERVE}:
        return [f"{start.kind.value}, {start.size_bytes} bytes, nothing to read in it"]
    return []


def row_line(row: Row) -> str:
    if isinstance(row, RecordFound):
        return _record_line(row)
    is_java = isinstance(row, BatchFound | ProducerFound)
    return " ".join(
        f"{name}: {_java(name, value) if is_java else value}"
        for name, value in fields_of(row).items()
        if value != ""
    )


def _java(name: str, value: Any) -> str:
    """The value as Java prints it."""
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _record_line(row: RecordFound) -> str:
    keys = printable(",".join([name for name, _ in row.headers])) if row.headers else ""
    parts = [
        f"| offset: {row.offset} {row.timestamp_type}: {row.timestamp}",
        f"keySize: {-1 if row.key is None else len(row.key)}",
        f"valueSize: {-1 if row.value is None else len(row.value)}",
        f"sequence: {row.sequence} headerKeys: [{keys}]",
    ]
    if row.is_control:
        parts.append(_control_text(row))
    else:
        parts += _content_texts(row)
    return " ".join(parts)


def _control_text(row: RecordFound) -> str:
    if row.decoded_key is None:
        return "controlType: unreadable"
    name = row.decoded_key.name
    value = row.decoded_value.fields if row.decoded_value else {}
    if name in _MARKERS:
        return f"endTxnMarker: {name} coordinatorEpoch: {value.get('coordinatorEpoch')}"
    if name == "LeaderChange":
        name += ":"
    return f"{name} {json_text(value)}"


def _content_texts(row: RecordFound) -> list[str]:
    texts = []
    key, value = row.decoded_key, row.decoded_value
    if key is not None:
        texts.append(f"key: {json_text({'type': str(key.record_type), 'data': key.fields})}")
    elif row.key is not None:
        texts.append(f"key: {shown_bytes(row.key)}")
    if value is not None:
        texts.append(f"payload: {json_text(_apache_value(value, is_keyed=key is not None))}")
    elif row.value is not None:
        texts.append(f"payload: {shown_bytes(row.value)}")
    elif key is not None:
        texts.append("payload: <DELETE>")
    return texts


def _apache_value(value: Decoded, *, is_keyed: bool) -> dict[str, Any]:
    if is_keyed:
        return {"version": str(value.version), "data": value.fields}
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value.name).upper()
    return {"type": kind, "version": value.version, "data": value.fields}
