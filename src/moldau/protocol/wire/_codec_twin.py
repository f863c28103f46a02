"""The Python twin of _codec.pyx: reads and writes messages by walking the same plans, step by step.
Same results, same errors, no compiler needed.
"""

from struct import Struct as Layout
from typing import Any, TypeVar

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.wire.primitives import (
    BYTES_LIKE_ELEMENT,
    ELEMENT_BUDGET,
    INLINE_BYTES_MAX,
    LENGTH_MAX,
    NO_BUDGET,
    STRING_BYTES_MAX,
    UNKNOWN_TAGS_MAX,
    MessageTooLargeError,
    malformed,
    refused,
    shortened,
    unsigned_varint,
    unwritable,
)
from moldau.protocol.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    STRUCT,
    UINT16,
    UINT32,
    UUID,
    Message,
    Plan,
    Step,
    Struct,
    build_plan,
    fresh_default,
    is_default,
)
from moldau.types import Buffer, Uuid

M = TypeVar("M", bound=Message)

_LAYOUTS = {
    INT8: Layout(">b"),
    INT16: Layout(">h"),
    UINT16: Layout(">H"),
    INT32: Layout(">i"),
    UINT32: Layout(">I"),
    INT64: Layout(">q"),
    FLOAT64: Layout(">d"),
}
_RANGES = {
    INT8: (-(1 << 7), (1 << 7) - 1),
    INT16: (-(1 << 15), (1 << 15) - 1),
    UINT16: (0, (1 << 16) - 1),
    INT32: (-(1 << 31), (1 << 31) - 1),
    UINT32: (0, (1 << 32) - 1),
    INT64: (-(1 << 63), (1 << 63) - 1),
}
_plans: dict[tuple[type[Message], int], Plan] = {}


def _plan_of(message_class: type[Message], version: int) -> Plan:
    plan = _plans.get((message_class, version))
    if plan is None:
        plan = _plans[message_class, version] = build_plan(message_class, version)
    return plan


def decode(
    message_class: type[M], version: int, buffer: Buffer, *, budget: int = ELEMENT_BUDGET
) -> M:
    message, end = decode_prefix(message_class, version, buffer, 0, budget=budget)
    size = memoryview(buffer).nbytes
    if end != size:
        label = _plan_of(message_class, version).label
        raise MalformedRequestError(f"{label}: {size - end} bytes after the end")
    return message


def decode_prefix(
    message_class: type[M],
    version: int,
    buffer: Buffer,
    offset: int = 0,
    *,
    budget: int = ELEMENT_BUDGET,
) -> tuple[M, int]:
    plan = _plan_of(message_class, version)
    view = memoryview(buffer).cast("B")
    if not 0 <= offset <= len(view):
        raise MalformedRequestError(f"{plan.label}: offset {offset} is outside the input")
    reader = _Reader(view, offset, budget, plan.label)
    message: Any = reader.read_struct(plan)
    return message, reader.position


def encode(message: Message, version: int) -> bytes:
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Message, version: int, *, budget: int = NO_BUDGET) -> list[Buffer]:
    plan = _plan_of(type(message), version)
    writer = _Writer(plan.label, budget)
    writer.write_struct(plan, message)
    return writer.finish()


class _Reader:
    __slots__ = ("budget", "end", "label", "left", "position", "view")

    def __init__(self, view: memoryview, position: int, budget: int, label: str) -> None:
        self.view = view
        self.position = position
        self.end = len(view)
        self.budget = budget
        self.left = budget
        self.label = label

    def take(self, size: int, name: str) -> memoryview:
        start = self.position
        if size > self.end - start:
            malformed(self.label, name, f"needs {size} bytes, {self.end - start} are left")
        self.position = start + size
        return self.view[start : start + size]

    def varint(self, name: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1, name)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            malformed(self.label, name, "varint of more than 5 bytes")
        if value > LENGTH_MAX:
            malformed(self.label, name, "varint of more than 31 bits")
        return value

    def length(self, name: str, layout: Layout | None) -> int:
        """The length of a string, bytes or an array; -1 is null. No layout: compact."""
        if layout is None:
            return self.varint(name) - 1
        size: int = layout.unpack(self.take(layout.size, name))[0]
        if size < -1:
            malformed(self.label, name, f"negative length {size}")
        return size

    def read_struct(self, plan: Plan) -> Struct:
        struct = plan.struct_class.__new__(plan.struct_class)
        for step in plan.steps:
            setattr(struct, step.name, self.read_field(step, is_tagged=False))
        for step in plan.absent:
            setattr(struct, step.name, fresh_default(step))
        if plan.is_flexible:
            self.read_tags(plan, struct)
        return struct

    def read_field(self, step: Step, *, is_tagged: bool) -> Any:
        if step.is_array:
            return self.read_array(step)
        if step.kind == STRUCT and step.is_nullable:
            present = self.varint(step.name) if is_tagged else self._presence(step.name)
            if not present:
                return None
        return self.read_value(step, is_nullable=step.is_nullable)

    def _presence(self, name: str) -> bool:
        return self.take(1, name)[0] < 0x80

    def read_array(self, step: Step) -> list[Any] | None:
        count = self.length(step.name, None if step.is_compact else _LAYOUTS[INT32])
        if count < 0:
            if not step.is_nullable:
                malformed(self.label, step.name, "null is not allowed")
            return None
        left = self.end - self.position
        if count > left // max(step.element_min_bytes, 1):
            malformed(self.label, step.name, f"{count} elements cannot fit in {left} bytes")
        self.left -= count
        if self.left < 0:
            malformed(self.label, step.name, f"more than {self.budget} elements in one message")
        return [self.read_value(step, is_nullable=False) for _ in range(count)]

    def read_value(self, step: Step, *, is_nullable: bool) -> Any:
        kind = step.kind
        if kind in _LAYOUTS:
            layout = _LAYOUTS[kind]
            return layout.unpack(self.take(layout.size, step.name))[0]
        if kind == BOOL:
            return self.take(1, step.name)[0] != 0
        if kind == UUID:
            return Uuid(bytes(self.take(16, step.name)))
        if kind == STRUCT:
            assert step.plan is not None
            return self.read_struct(step.plan)
        return self._read_sized(step, is_nullable)

    def _read_sized(self, step: Step, is_nullable: bool) -> str | bytes | memoryview | None:
        is_string = step.kind == STRING
        layout = None if step.is_compact else _LAYOUTS[INT16 if is_string else INT32]
        size = self.length(step.name, layout)
        if size < 0:
            if not is_nullable:
                malformed(self.label, step.name, "null is not allowed")
            return None
        if is_string and size > STRING_BYTES_MAX:
            malformed(self.label, step.name, f"string of {size} bytes")
        content = self.take(size, step.name)
        if step.kind == RECORDS:
            return content
        if not is_string:
            return bytes(content)
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError:
            malformed(self.label, step.name, "not UTF-8")

    def read_tags(self, plan: Plan, struct: Struct) -> None:
        pending = list(reversed(plan.tagged))
        last_tag = -1
        unknown = 0
        for _ in range(self.varint("tags")):
            tag = self.varint("tags")
            if tag <= last_tag:
                malformed(self.label, "tags", f"tag {tag} after tag {last_tag}")
            last_tag = tag
            size = self.varint("tags")
            if size > self.end - self.position:
                self.take(size, "tags")
            while pending and pending[-1].tag < tag:
                step = pending.pop()
                setattr(struct, step.name, fresh_default(step))
            if pending and pending[-1].tag == tag:
                self._read_tagged(struct, pending.pop(), size)
                continue
            if tag in plan.refused_tags:
                malformed(self.label, "tags", f"tag {tag} does not belong to this version")
            unknown += 1
            if unknown > UNKNOWN_TAGS_MAX:
                malformed(self.label, "tags", f"more than {UNKNOWN_TAGS_MAX} unknown tags")
            self.position += size
        for step in pending:
            setattr(struct, step.name, fresh_default(step))

    def _read_tagged(self, struct: Struct, step: Step, size: int) -> None:
        end = self.position + size
        setattr(struct, step.name, self.read_field(step, is_tagged=True))
        if self.position != end:
            malformed(self.label, step.name, f"its size is not the {size} bytes announced")


class _Writer:
    __slots__ = ("budget", "chunks", "label", "left", "out")

    def __init__(self, label: str, budget: int) -> None:
        self.label = label
        self.budget = budget
        self.left = budget
        self.out = bytearray()
        self.chunks: list[Buffer] = []

    def finish(self) -> list[Buffer]:
        if self.out or not self.chunks:
            self.chunks.append(bytes(self.out))
        return self.chunks

    def write_struct(self, plan: Plan, struct: object) -> None:
        if not isinstance(struct, plan.struct_class):
            unwritable(self.label, plan.struct_class.__name__, f"got {type(struct).__name__}")
        for step in plan.refused:
            if not is_default(step, self._get(struct, step)):
                refused(self.label, step.name)
        for step in plan.steps:
            self.write_field(step, self._get(struct, step), is_tagged=False)
        if plan.is_flexible:
            self._write_tags(plan, struct)

    def _get(self, struct: object, step: Step) -> Any:
        try:
            return getattr(struct, step.name)
        except AttributeError:
            unwritable(self.label, step.name, "was deleted")

    def _write_tags(self, plan: Plan, struct: object) -> None:
        values = [(step, self._get(struct, step)) for step in plan.tagged]
        values = [(step, value) for step, value in values if not is_default(step, value)]
        self.out += unsigned_varint(len(values))
        for step, value in values:
            inner = _Writer(self.label, self.budget)
            inner.left = self.left
            inner.write_field(step, value, is_tagged=True)
            self.left = inner.left
            content = b"".join(inner.finish())
            self.out += unsigned_varint(step.tag) + unsigned_varint(len(content)) + content

    def write_field(self, step: Step, value: Any, *, is_tagged: bool) -> None:
        if value is None:
            self._write_null(step, is_tagged=is_tagged)
        elif step.is_array:
            if not isinstance(value, list | tuple):
                unwritable(self.label, step.name, f"needs a list, got {type(value).__name__}")
            self._spend(len(value))
            self._write_length(len(value), step, INT32)
            for element in value:
                if element is None:
                    unwritable(self.label, step.name, "null is not allowed")
                self.write_value(step, element)
        else:
            if step.kind == STRUCT and step.is_nullable:
                self.out += b"\x01"
            self.write_value(step, value)

    def _write_null(self, step: Step, *, is_tagged: bool) -> None:
        if not step.is_nullable:
            unwritable(self.label, step.name, "null is not allowed")
        if step.kind == STRUCT and not step.is_array and not is_tagged:
            self.out += b"\xff"
        elif step.is_compact or is_tagged:
            self.out += b"\x00"
        elif step.kind == STRING and not step.is_array:
            self.out += b"\xff\xff"
        else:
            self.out += b"\xff\xff\xff\xff"

    def _write_length(self, length: int, step: Step, kind: int) -> None:
        if length >= LENGTH_MAX:
            unwritable(self.label, step.name, f"{length} is too long")
        if step.is_compact:
            self.out += unsigned_varint(length + 1)
        else:
            self.out += _LAYOUTS[kind].pack(length)

    def write_value(self, step: Step, value: Any) -> None:
        kind = step.kind
        if kind in _RANGES:
            self._write_integer(step, value)
        elif kind == BOOL:
            if not isinstance(value, bool):
                unwritable(self.label, step.name, f"needs a bool, got {type(value).__name__}")
            self.out += b"\x01" if value else b"\x00"
        elif kind == STRUCT:
            assert step.plan is not None
            self.write_struct(step.plan, value)
        elif kind == STRING:
            self._write_string(step, value)
        elif kind == UUID:
            if not isinstance(value, bytes) or len(value) != 16:
                unwritable(self.label, step.name, "needs 16 bytes")
            self.out += value
        elif kind == FLOAT64:
            if not isinstance(value, float):
                unwritable(self.label, step.name, f"needs a float, got {type(value).__name__}")
            self.out += _LAYOUTS[FLOAT64].pack(value)
        else:
            self._write_buffers(step, value)

    def _write_integer(self, step: Step, value: Any) -> None:
        if not isinstance(value, int):
            unwritable(self.label, step.name, f"needs an int, got {type(value).__name__}")
        low, high = _RANGES[step.kind]
        if not low <= value <= high:
            unwritable(self.label, step.name, f"{int(value)} is out of range {low}..{high}")
        self.out += _LAYOUTS[step.kind].pack(value)

    def _write_string(self, step: Step, value: Any) -> None:
        if not isinstance(value, str):
            unwritable(self.label, step.name, f"needs a str, got {type(value).__name__}")
        try:
            content = value.encode("utf-8")
        except UnicodeEncodeError:
            unwritable(self.label, step.name, "not UTF-8")
        if len(content) > STRING_BYTES_MAX:
            content = shortened(self.label, step.name, value, len(content)).encode("utf-8")
        self._write_length(len(content), step, INT16)
        self.out += content
        if len(content) > BYTES_LIKE_ELEMENT:
            self._spend(len(content) // BYTES_LIKE_ELEMENT)

    def _spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            text = f"{self.label}: more than {self.budget} elements in one message"
            raise MessageTooLargeError(text)

    def _write_buffers(self, step: Step, value: Any) -> None:
        parts = value if step.kind == RECORDS and isinstance(value, list | tuple) else (value,)
        views = [self._view(step, part) for part in parts]
        self._write_length(sum(len(view) for view in views), step, INT32)
        for view, part in zip(views, parts, strict=True):
            if len(view) <= INLINE_BYTES_MAX:
                self.out += view
                continue
            if self.out:
                self.chunks.append(bytes(self.out))
                self.out = bytearray()
            self.chunks.append(part if isinstance(part, bytes) else view)

    def _view(self, step: Step, part: Any) -> memoryview:
        try:
            return memoryview(part).cast("B")
        except TypeError:
            unwritable(self.label, step.name, f"needs bytes, got {type(part).__name__}")
