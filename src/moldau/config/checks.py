"""Rules for the values of settings, with Kafka's error messages."""

import re
from collections.abc import Callable
from typing import Any

from moldau.config.addresses import host_and_port, voter
from moldau.config.schema import Check, invalid_value
from moldau.config.values import java_set

BY_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_THROTTLED = re.compile(r"(?:[0-9]+:[0-9]+)?(?:,(?:[0-9]+:[0-9]+)?)*")
"""Of all items together, since there may be thousands of them."""


def holding(
    rule: str, reason: str, holds: Callable[[Any], bool], choices: tuple[str, ...] = ()
) -> Check:
    """A rule with a single error message."""
    return Check(
        rule,
        lambda name, value: None if holds(value) else invalid_value(name, value, reason),
        choices,
    )


def at_least(minimum: float) -> Check:
    rule = f"at least {minimum}"
    return holding(rule, f"Value must be {rule}", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Check:
    def complaint(name: str, value: float) -> str | None:
        if value < minimum:
            return invalid_value(name, value, f"Value must be at least {minimum}")
        if value > maximum:
            return invalid_value(name, value, f"Value must be no more than {maximum}")
        return None

    return Check(f"{minimum} to {maximum}", complaint)


def one_of(*allowed: str) -> Check:
    names = ", ".join(allowed)
    reason = f"String must be one of: {names}"
    return holding(f"one of {names}", reason, lambda value: value in allowed, allowed)


def one_of_any_case(*allowed: str) -> Check:
    names = java_set(name.upper() for name in allowed)
    reason = f"String must be one of (case insensitive): {', '.join(names)}"
    rule = f"one of {', '.join(allowed)} in any case"
    usual = tuple(spelled for name in allowed for spelled in (name.upper(), name.lower()))
    return holding(rule, reason, lambda value: value.upper() in names, usual)


def each_of(*allowed: str) -> Check:
    of_item = one_of(*allowed)

    def complaint(name: str, items: tuple[str, ...]) -> str | None:
        complaints = (of_item.complaint(name, item) for item in items)
        return next(filter(None, complaints), None)

    return Check(f"a list of {', '.join(allowed)}", complaint)


def some_of(*allowed: str) -> Check:
    of_items = each_of(*allowed)

    def complaint(name: str, items: tuple[str, ...]) -> str | None:
        return of_items.complaint(name, items) if items else _empty(name, f"[{', '.join(allowed)}]")

    return Check(f"at least one of {', '.join(allowed)}", complaint)


def _empty(name: str, allowed: str) -> str:
    return f"Configuration '{name}' must not be empty. Valid values include: {allowed}"


def _nothing(name: str, value: str | tuple[str, ...]) -> str | None:
    if value:
        return None
    if isinstance(value, str):
        return invalid_value(name, value, "String must be non-empty")
    return _empty(name, "any non-empty value")


NOT_EMPTY = Check("not empty", _nothing)

GZIP_LEVEL = holding(
    "-1 or 1 to 9",
    "Value must be between 1 and 9 or equal to -1",
    lambda level: level == -1 or 1 <= level <= 9,
)


def _throttled(name: str, items: tuple[str, ...]) -> str | None:
    if items == ("*",) or _THROTTLED.fullmatch(",".join(items)):
        return None
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
    return invalid_value(name, items, reason)


THROTTLED_REPLICAS = Check("* or a list of partition:broker", _throttled)

VOTERS = holding(
    "a list of id@host:port",
    "Each entry should be in the form `{id}@{host}:{port}`.",
    lambda items: all(map(voter, items)),
)
SERVERS = holding(
    "a list of host:port",
    'Each entry should be in the form "{host}:{port}"',
    lambda items: all(map(host_and_port, items)),
)
