"""The types of Kafka's settings: text is parsed as in Kafka, and values are printed as in Kafka."""

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from moldau.types import INT16_MAX, INT32_MAX, INT64_MAX

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


class Kind(IntEnum):
    """Kafka's types, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Kind

VALUE_FORMS = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "a whole number of 32 bits",
    Kind.SHORT: "a whole number of 16 bits",
    Kind.LONG: "a whole number of 64 bits",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a list of different, non-empty items separated by commas",
    Kind.CLASS: "the name of a class",
    Kind.PASSWORD: "text",
}

# Kafka's messages for text that is not a value of the type.
PARSE_COMPLAINTS = {
    Kind.BOOLEAN: "Expected value to be either true or false",
    Kind.INT: "Not a number of type INT",
    Kind.SHORT: "Not a number of type SHORT",
    Kind.LONG: "Not a number of type LONG",
    Kind.DOUBLE: "Not a number of type DOUBLE",
    Kind.CLASS: "Class  could not be found.",
}

_DIGITS_MAX = 19
_DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?"


def _whole(maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # Stricter than int(): Kafka refuses underscores and digits of other alphabets.
        digits = text.strip()
        digits = digits[1:] if digits.startswith(("+", "-")) else digits
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(text)
        if len(digits.lstrip("0")) > _DIGITS_MAX:
            raise ValueError(text)
        value = int(text)
        if not -maximum - 1 <= value <= maximum:
            raise ValueError(text)
        return value

    return parse


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(text)


def _double(text: str) -> float:
    trimmed = text.strip()
    if not re.fullmatch(_DECIMAL, trimmed):
        raise ValueError(text)
    return float(trimmed.rstrip("dDfF"))


def _items(text: str) -> tuple[str, ...]:
    """As in Kafka, without duplicates."""
    items = (item.strip() for item in text.split(",")) if text.strip() else ()
    return tuple(dict.fromkeys(items))


def _class_name(text: str) -> str:
    trimmed = text.strip()
    if not trimmed:
        raise ValueError(text)
    return trimmed


PARSERS: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: str.strip,
    Kind.INT: _whole(INT32_MAX),
    Kind.SHORT: _whole(INT16_MAX),
    Kind.LONG: _whole(INT64_MAX),
    Kind.DOUBLE: _double,
    Kind.LIST: _items,
    Kind.CLASS: _class_name,
    Kind.PASSWORD: str.strip,
}


def text_of(value: Any, kind: Kind) -> str | None:
    """Kafka's text of the value: clients compare these texts."""
    if value is None:
        return None
    match kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return _java_double(float(value))
        case Kind.LIST:
            return ",".join(value)
        case _:
            return str(value)


def java_text(value: Any) -> str:
    """Java's text of a value in messages."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(java_text, value))}]"
    return str(value)


def java_set(names: Iterable[str]) -> list[str]:
    """The iteration order of Java's HashSet, in which Kafka's messages list names."""
    found = list(dict.fromkeys(names))
    size = 16
    while len(found) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        hashed = 0
        for unit in memoryview(name.encode("utf-16-le")).cast("H"):
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
        return (hashed ^ (hashed >> 16)) & (size - 1)

    return sorted(found, key=bucket)


def _java_double(value: float) -> str:
    """Java prints 1.0E7 for Python's 10000000.0; the digits are the same."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    number = Decimal(repr(value)).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"
