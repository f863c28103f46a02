"""The largest requests that are cheap to send, for every API that a broker serves: for each array
of a request a message with many elements in it. Topics and groups are existing ones, unless they
are the elements themselves.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from moldau.broker.handlers.table import HANDLERS
from moldau.protocol.messages import request_class
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    STRUCT,
    UUID,
    Message,
    Plan,
    Step,
    build_plan,
    fresh_default,
)

ELEMENTS_MAX = 99_000
"""A node accepts 100,000 in one request."""
TOPIC_FIELDS = frozenset({"name", "topic", "topic_name", "resource_name"})
INT16_MAX = 0x7FFF
PLENTY_OF_TIME_MS = 30_000


class Existing(NamedTuple):
    """The names to use in requests."""

    topic: str
    topic_id: bytes
    group: str


class Large(NamedTuple):
    name: str
    """The API, and the array that is long."""
    message: Message
    version: int


def large_requests(existing: Existing, elements: int = ELEMENTS_MAX) -> Iterator[Large]:
    for api_key in HANDLERS:
        message_class = request_class(api_key)
        for path, (version, plan) in _newest(message_class).items():
            message = _Filler(existing, path, elements).struct(plan, 0)
            if isinstance(message, ProduceRequest):
                message.acks = 1
            if hasattr(message, "timeout_ms"):
                message.timeout_ms = PLENTY_OF_TIME_MS
            yield Large(f"{api_key.name} {'.'.join(path)}", message, version)


def _newest(message_class: type[Message]) -> dict[tuple[str, ...], tuple[int, Plan]]:
    """For each array, the newest version that has it."""
    oldest, newest = message_class.VERSIONS
    found: dict[tuple[str, ...], tuple[int, Plan]] = {}
    for version in range(newest, oldest - 1, -1):
        plan = build_plan(message_class, version)
        for path in _arrays(plan):
            found.setdefault(path, (version, plan))
    return found


def _arrays(plan: Plan, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for step in (*plan.steps, *plan.tagged):
        path = (*outer, step.name)
        if step.is_array:
            yield path
        if step.plan is not None:
            yield from _arrays(step.plan, path)


class _Filler:
    def __init__(self, existing: Existing, path: tuple[str, ...], elements: int) -> None:
        self._existing = existing
        self._path = path
        self._elements = elements

    def struct(self, plan: Plan, number: int, outer: tuple[str, ...] = ()) -> Any:
        struct = plan.struct_class()
        is_many = bool(outer) and outer == self._path
        for step in (*plan.steps, *plan.tagged):
            path = (*outer, step.name)
            if step.is_array:
                elements = [self._value(step, i, path) for i in range(self._count(path))]
                if elements or step.tag < 0:
                    setattr(struct, step.name, elements)
            elif step.tag < 0:
                setattr(struct, step.name, self._value(step, number, path, is_many=is_many))
        return struct

    def _count(self, path: tuple[str, ...]) -> int:
        if path == self._path:
            return self._elements - len(path)
        return 1 if self._path[: len(path)] == path else 0

    def _value(
        self, step: Step, number: int, path: tuple[str, ...], *, is_many: bool | None = None
    ) -> Any:
        is_many = path == self._path if is_many is None else is_many
        if step.kind == STRUCT:
            assert step.plan is not None
            is_left_out = not step.is_array and step.is_nullable
            return None if is_left_out else self.struct(step.plan, number, path)
        if step.kind == STRING:
            return self._text(step, number, is_many=is_many)
        if step.kind == UUID:
            return number.to_bytes(16, "big") if is_many else self._existing.topic_id
        if step.kind in {INT8, INT16, INT32, INT64} and is_many:
            return {INT8: 2, INT16: number & INT16_MAX}.get(step.kind, number)
        return fresh_default(step._replace(is_array=False))

    def _text(self, step: Step, number: int, *, is_many: bool) -> str:
        if is_many:
            return f"n-{number}"
        return self._existing.topic if step.name in TOPIC_FIELDS else self._existing.group
