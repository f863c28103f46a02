"""Estimates how much memory a message takes: ten bytes on the wire may be an object of two hundred.
Long lists are sampled; objects that several elements share count once, as a response often
repeats the same ones.
"""

from typing import Any

from moldau.protocol.wire.schema import FIELD_NAME, Message, Struct

_SAMPLES_MAX = 16
_NUMBER_BYTES = 16
"""Most numbers are small, and shared by the interpreter."""
_TEXT_BYTES = 56
_TEXT_BYTES_MAX = 1024
_LIST_BYTES = 56
_POINTER_BYTES = 8
_STRUCT_BYTES = 48


def weight_of(message: Message) -> int:
    return int(_weight(message, set()))


def _weight(value: Any, seen: set[int]) -> float:
    if isinstance(value, int | None):
        return _NUMBER_BYTES
    if id(value) in seen:
        return _POINTER_BYTES
    seen.add(id(value))
    if isinstance(value, Struct):
        fields = value.FIELDS
        of_fields = sum(_weight(getattr(value, row[FIELD_NAME]), seen) for row in fields)
        return _STRUCT_BYTES + _POINTER_BYTES * len(fields) + of_fields
    if isinstance(value, list):
        count = len(value)
        if not count:
            return _LIST_BYTES
        # Objects that all elements share are counted with the first element.
        first, *others = (_weight(each, seen) for each in value[:: -(-count // _SAMPLES_MAX)])
        of_each = sum(others) / max(len(others), 1)
        return _LIST_BYTES + count * _POINTER_BYTES + first + (count - 1) * of_each
    length = len(value) if isinstance(value, str | bytes) else 0
    # A long value is not a copy: it has another owner, too.
    return _TEXT_BYTES + min(length, _TEXT_BYTES_MAX)
