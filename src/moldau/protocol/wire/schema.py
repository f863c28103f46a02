"""The tables of the messages. A generated class has one row per field for all versions; the first
use of a version turns the rows into a `Plan`, the flat list of steps that the compiled loop and its
Python twin both walk. Nothing here touches bytes.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import ZERO_UUID, Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

# Batches: a view of the input when read; anything bytes-like, or several of them, when written.
Records: TypeAlias = "Buffer | Sequence[Buffer]"

# Means "a new empty list (or structure)" in constructors, where None may be a real value.
UNSET: Final[Any] = ...

BOOL = 0
INT8 = 1
INT16 = 2
UINT16 = 3
INT32 = 4
UINT32 = 5
INT64 = 6
FLOAT64 = 7
UUID = 8
STRING = 9
BYTES = 10
RECORDS = 11
STRUCT = 12

_KINDS = {
    "bool": BOOL,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "float64": FLOAT64,
    "uuid": UUID,
    "string": STRING,
    "bytes": BYTES,
    "records": RECORDS,
}
_FIXED_SIZES = {BOOL: 1, INT8: 1, INT16: 2, UINT16: 2, INT32: 4, UINT32: 4, INT64: 8, FLOAT64: 8}
_FIXED_SIZES[UUID] = 16

_NEVER = 1 << 15
_SHOWN_BYTES_MAX = 64

# A row of `FIELDS`, a plain tuple because there are thousands: name, wire type, versions, nullable
# versions, tag or -1, default, flags ("i" ignorable, "s" secret, "c" never compact). The default ()
# is a new list or structure.
Row: TypeAlias = tuple[str, str, str, str, int, Any, str]
FIELD_NAME: Final = 0
FIELD_VERSIONS: Final = 2
FIELD_TAG: Final = 4
FIELD_FLAGS: Final = 6


class Struct:
    """A part of a message: typed attributes, compared by value, mutable, so unhashable."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Row, ...]] = ()

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        # Types are not compared: a shared default is of a subclass.
        if not isinstance(other, Struct) or other.FIELDS is not self.FIELDS:
            return NotImplemented
        return all(
            getattr(self, row[FIELD_NAME]) == getattr(other, row[FIELD_NAME]) for row in self.FIELDS
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'***' if 's' in flags else _shown(getattr(self, name))}"
            for name, *_, flags in self.FIELDS
        )
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """A complete unit on the wire or in a log: it has versions of its own."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, -1)
    FLEXIBLE_FROM: ClassVar[int] = _NEVER

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.FLEXIBLE_FROM


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > _SHOWN_BYTES_MAX:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)


class Step(NamedTuple):
    """One field in one version. `kind` is the element's kind when `is_array`."""

    name: str
    kind: int
    is_array: bool
    is_compact: bool
    is_nullable: bool
    tag: int
    default: Any
    """The value itself; () stands for a new empty list or structure."""
    plan: "Plan | None"
    """The plan of the structure, or of the array's structures."""

    @property
    def min_bytes(self) -> int:
        """The smallest size of the field on the wire."""
        if self.is_array or self.kind in {BYTES, RECORDS}:
            return 1 if self.is_compact else 4
        return 1 if self.is_nullable and self.kind == STRUCT else self.element_min_bytes

    @property
    def element_min_bytes(self) -> int:
        if self.plan is not None:
            return self.plan.min_bytes
        if self.kind == STRING:
            return 1 if self.is_compact else 2
        return _FIXED_SIZES.get(self.kind, 1 if self.is_compact else 4)


class Plan(NamedTuple):
    """One structure in one version of its message."""

    struct_class: type[Struct]
    label: str
    is_flexible: bool
    steps: tuple[Step, ...]
    tagged: tuple[Step, ...]
    """In order of tags."""
    absent: tuple[Step, ...]
    """Fields of other versions: never written, and read as their defaults."""
    refused: tuple[Step, ...]
    """The fields of `absent` that must be at their default when written."""
    refused_tags: frozenset[int]
    """Tags that other versions define and this one does not."""
    min_bytes: int


def build_plan(message_class: type[Message], version: int) -> Plan:
    """Raises KafkaError(UNSUPPORTED_VERSION) for a version the message does not have."""
    if not issubclass(message_class, Message):
        raise TypeError(f"{message_class.__name__} is not a message")
    first, last = message_class.VERSIONS
    if not first <= version <= last:
        detail = f"{message_class.__name__} has no version {version} (known: {first}-{last})"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
    label = f"{message_class.__name__} v{version}"
    return _Builder(version, message_class.is_flexible(version), label).build(message_class)


class _Builder:
    def __init__(self, version: int, is_flexible: bool, label: str) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.label = label
        self.built: dict[type[Struct], Plan] = {}

    def build(self, struct_class: type[Struct]) -> Plan:
        if struct_class in self.built:
            return self.built[struct_class]
        rows = struct_class.FIELDS
        present = [row for row in rows if contains(row[FIELD_VERSIONS], self.version)]
        others = [row for row in rows if not contains(row[FIELD_VERSIONS], self.version)]
        steps = tuple(self._step(struct_class, row) for row in present if row[FIELD_TAG] < 0)
        tagged = [self._step(struct_class, row) for row in present if row[FIELD_TAG] >= 0]
        absent = [(row, self._step(struct_class, row)) for row in others]
        plan = Plan(
            struct_class,
            self.label,
            self.is_flexible,
            steps,
            tuple(sorted(tagged, key=lambda step: step.tag)),
            tuple(step for _, step in absent),
            tuple(step for row, step in absent if "i" not in row[FIELD_FLAGS]),
            frozenset(row[FIELD_TAG] for row in others if row[FIELD_TAG] >= 0),
            sum(step.min_bytes for step in steps) + self.is_flexible,
        )
        self.built[struct_class] = plan
        return plan

    def _step(self, owner: type[Struct], row: Row) -> Step:
        name, wire_type, _, nullable, tag, default, flags = row
        element = wire_type.removeprefix("[]")
        kind = _KINDS.get(element, STRUCT)
        return Step(
            name=name,
            kind=kind,
            is_array=wire_type.startswith("[]"),
            is_compact=self.is_flexible and "c" not in flags,
            is_nullable=contains(nullable, self.version),
            tag=tag,
            default=ZERO_UUID if wire_type == "uuid" else default,
            plan=self.build(struct_named(owner, element)) if kind == STRUCT else None,
        )


def struct_named(owner: type[Struct], name: str) -> type[Struct]:
    """Structures are defined in the module of their message."""
    struct_class: type[Struct] = getattr(sys.modules[owner.__module__], name)
    return struct_class


def contains(versions: str, version: int) -> bool:
    """Whether a range such as "3+", "0-4", "2" or "none" contains that version."""
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


S = TypeVar("S", bound=Struct)
_shared: dict[type[Struct], Struct | None] = {}


def default_struct(struct_class: type[S]) -> S:
    """A structure at its defaults. One with only plain values is shared and read-only: a Fetch
    response has three such fields per partition, nearly always at their defaults.
    """
    if struct_class not in _shared:
        _shared[struct_class] = _read_only(struct_class) if _is_plain(struct_class) else None
    shared: Any = _shared[struct_class]
    return struct_class() if shared is None else shared


def _is_plain(struct_class: type[Struct]) -> bool:
    return all(
        default != () or not isinstance(default, tuple) or not wire_type.startswith("[]")
        for _, wire_type, _, _, _, default, _ in struct_class.FIELDS
    ) and all(
        _is_plain(struct_named(struct_class, wire_type))
        for _, wire_type, *_ in struct_class.FIELDS
        if wire_type[0].isupper()
    )


def _read_only(struct_class: type[Struct]) -> Struct:
    def refuse(self: Struct, name: str, _value: object = None) -> None:
        text = f"this {type(self).__name__} is a shared default; assign a new one to set {name}"
        raise AttributeError(text)

    def itself(self: Struct, _memo: object = None) -> Struct:
        return self

    def same_default(_self: Struct) -> tuple[Any, ...]:
        return default_struct, (struct_class,)

    members = {
        "__slots__": (),
        "__setattr__": refuse,
        "__delattr__": refuse,
        "__copy__": itself,
        "__deepcopy__": itself,
        "__reduce__": same_default,
        "__module__": struct_class.__module__,
    }
    plain = struct_class()
    frozen: Any = type(struct_class.__name__, (struct_class,), members)
    shared: Struct = frozen.__new__(frozen)
    for name, *_ in struct_class.FIELDS:
        object.__setattr__(shared, name, getattr(plain, name))
    return shared


def fresh_default(step: Step) -> Any:
    """The default as a value that may be modified: lists are never shared."""
    if not isinstance(step.default, tuple):
        return step.default
    if step.is_array:
        return []
    assert step.plan is not None
    return default_struct(step.plan.struct_class)


def is_default(step: Step, value: object) -> bool:
    """Whether Kafka treats the value as the default, for tagged fields and fields that a version
    cannot carry.
    """
    if step.default is None or value is None:
        return value is step.default
    if step.is_array or step.kind in {BYTES, RECORDS}:
        return not value
    if step.plan is None:
        return bool(value == step.default)
    plan = step.plan
    return isinstance(value, plan.struct_class) and all(
        is_default(inner, getattr(value, inner.name))
        for inner in (*plan.steps, *plan.tagged, *plan.absent)
    )


def supported_versions(message_class: type[Message]) -> Iterator[int]:
    first, last = message_class.VERSIONS
    return iter(range(first, last + 1))
