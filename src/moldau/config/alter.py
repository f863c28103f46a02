"""Applies AlterConfigs and IncrementalAlterConfigs to a resource's settings. The result is
validated elsewhere: validate_topic_configs, validate_group_configs, validate_client_metrics, and
dynamic.py for brokers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.config.schema import Setting, refused
from moldau.config.values import Kind
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import INT16_MAX

VALUE_LENGTH_MAX = INT16_MAX


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One unchecked entry of a request."""

    name: str
    value: str | None
    operation: int = Operation.SET


def altered(
    current: Mapping[str, str],
    changes: Sequence[Change],
    declared: Mapping[str, Setting],
    *,
    by_broker: bool = False,
) -> dict[str, str]:
    """The resource's settings after the changes, in the order of the old ones. Raises KafkaError
    for the first impossible change. `by_broker`: the messages are those of Kafka's brokers, which
    differ from the controllers'.
    """
    _check_form(changes)
    result = dict(current)
    for change in changes:
        match change.operation:
            case Operation.DELETE:
                result.pop(change.name, None)
            case Operation.SET:
                result[change.name] = _text(change)
            case _:
                setting = _list_setting(change, declared, by_broker=by_broker)
                result[change.name] = _with_items(result.get(change.name), change, setting)
        # In bytes, because a metadata record has no room for more; Kafka counts characters.
        if not by_broker and len(result.get(change.name, "").encode()) > VALUE_LENGTH_MAX:
            raise refused(
                "The configuration value cannot be added because it exceeds the maximum value size "
                f"of {VALUE_LENGTH_MAX} bytes."
            )
    return result


def replaced(changes: Sequence[Change]) -> dict[str, str]:
    """The resource's settings after the older AlterConfigs, which replaces all of them."""
    return altered({}, [change._replace(operation=Operation.SET) for change in changes], {})


def _check_form(changes: Sequence[Change]) -> None:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [
        change.name
        for change in changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if missing:
        detail = f"Null value not supported for : {', '.join(missing)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    known = frozenset(Operation)
    for change in changes:
        if change.operation not in known:
            detail = f"Unknown operations type {change.operation}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _text(change: Change) -> str:
    assert change.value is not None
    return change.value


def _list_setting(change: Change, declared: Mapping[str, Setting], *, by_broker: bool) -> Setting:
    setting = declared.get(change.name)
    if setting is not None and setting.kind is Kind.LIST:
        return setting
    operation = Operation(change.operation).name
    if not by_broker:
        raise refused(f"Can't {operation} to key {change.name} because its type is not LIST.")
    if setting is None:
        raise refused(f"Unknown config name: {change.name}")
    raise refused(f"Config value {operation.lower()} is not allowed for config key: {change.name}")


def _with_items(current: str | None, change: Change, setting: Setting) -> str:
    """A list with items added or removed. Without a value it starts as the default. As in Kafka, an
    item that is there twice is removed twice only if it is given twice.
    """
    items = _items(setting.text(setting.default) if current is None else current)
    given = _items(_text(change))
    if change.operation == Operation.APPEND:
        known = frozenset(items)
        items += [item for item in dict.fromkeys(given) if item not in known]
        return ",".join(items)
    left = Counter(given)
    kept = []
    for item in items:
        if left[item]:
            left[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]
