"""Generated values for any message of any version, drawn from the plans that the codec walks."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from moldau.protocol import log_records, messages
from moldau.protocol.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Message,
    Plan,
    Step,
    Struct,
    build_plan,
    fresh_default,
    supported_versions,
)

ARRAY_MAX = 2
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    UINT16: st.integers(0, (1 << 16) - 1),
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    UINT32: st.integers(0, (1 << 32) - 1),
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    # NaN is not equal to itself; a test of its own covers it.
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.binary(min_size=16, max_size=16),
    STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    BYTES: st.binary(max_size=8),
    RECORDS: st.binary(max_size=12),
}
COUNTS = st.integers(0, ARRAY_MAX)

# A peer may accept fewer values of a field than the wire does: (structure, field) -> its values.
Restriction = Callable[[type[Struct], str], st.SearchStrategy[Any] | None]


def all_classes() -> list[type[Message]]:
    found = [messages.message_class(name) for name in messages.message_names()]
    found += [log_records.message_class(name) for name in log_records.message_names()]
    return [each for each in found if each.VERSIONS[1] >= 0]


def all_class_versions() -> Iterator[tuple[type[Message], int]]:
    for each in all_classes():
        for version in supported_versions(each):
            yield each, version


def draw_message(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    message_class: type[Message],
    version: int,
    restriction: Restriction | None = None,
) -> Any:
    return _draw_struct(draw, build_plan(message_class, version), restriction)


def _draw_struct(draw: Callable[..., Any], plan: Plan, restriction: Restriction | None) -> Struct:
    values = {
        step.name: _draw_field(draw, plan, step, restriction)
        for step in (*plan.steps, *plan.tagged)
    }
    return plan.struct_class(**values)


def _draw_field(
    draw: Callable[..., Any], plan: Plan, step: Step, restriction: Restriction | None
) -> Any:
    # Tagged fields are absent when at their default: let that happen often.
    if step.tag >= 0 and draw(st.booleans()):
        return fresh_default(step)
    if step.is_nullable and draw(st.integers(0, 3)) == 0:
        return None
    if step.is_array:
        return [_draw_value(draw, plan, step, restriction) for _ in range(draw(COUNTS))]
    return _draw_value(draw, plan, step, restriction)


def _draw_value(
    draw: Callable[..., Any], plan: Plan, step: Step, restriction: Restriction | None
) -> Any:
    if step.plan is not None:
        return _draw_struct(draw, step.plan, restriction)
    restricted = restriction(plan.struct_class, step.name) if restriction else None
    return draw(SCALARS[step.kind] if restricted is None else restricted)


def example_message(message_class: type[Message], version: int, seed: int = 0) -> Any:
    """A value that is nowhere at its defaults: every field is filled, every array has two
    elements.
    """
    return _example_struct(build_plan(message_class, version), seed)


def _example_struct(plan: Plan, seed: int) -> Struct:
    values = {}
    for index, step in enumerate((*plan.steps, *plan.tagged)):
        number = seed + index + 1
        if step.is_array:
            values[step.name] = [_example_value(step, number), _example_value(step, number + 1)]
        else:
            values[step.name] = _example_value(step, number)
    return plan.struct_class(**values)


def _example_value(step: Step, number: int) -> Any:
    if step.plan is not None:
        return _example_struct(step.plan, number)
    values: dict[int, Any] = {
        BOOL: not step.default if isinstance(step.default, bool) else True,
        UUID: bytes([number % 256]) * 16,
        STRING: f"s{number}ř",
        BYTES: b"b%d" % number,
        RECORDS: b"records %d" % number,
        FLOAT64: number + math.pi,
    }
    return values.get(step.kind, number % 100 + 2)
