"""How a setting is declared, and what is derived from the declaration: parsing and error text.

A group of settings is a frozen dataclass whose fields come from `setting(...)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

ConfigT = TypeVar("ConfigT")
Check = Callable[[Any], str | None]

_BOOLEANS = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a dataclass field says about itself."""

    name: str
    doc: str
    check: Check | None


def setting(name: str, default: Any, doc: str, *, check: Check | None = None) -> Any:
    """Declare a setting: Kafka's name, its default, what it does, and what values it takes."""
    declared = Setting(name, doc, check)
    if isinstance(default, tuple | str | int | float | bool) or default is None:
        return field(default=default, metadata={"setting": declared})
    raise TypeError(f"the default of {name} must be immutable")


def at_least(minimum: float) -> Check:
    return lambda value: None if value >= minimum else f"must be at least {minimum}"


def between(minimum: float, maximum: float) -> Check:
    def check(value: float) -> str | None:
        return None if minimum <= value <= maximum else f"must be {minimum} to {maximum}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: str | tuple[str, ...]) -> str | None:
        given = value if isinstance(value, tuple) else (value,)
        wrong = [item for item in given if item not in allowed]
        return f"must be one of {', '.join(allowed)}" if wrong else None

    return check


def settings_of(config_class: type[Any]) -> dict[str, Field[Any]]:
    """Kafka's name of each setting -> its dataclass field, in declaration order."""
    return {f.metadata["setting"].name: f for f in fields(config_class) if "setting" in f.metadata}


def from_properties(config_class: type[ConfigT], properties: Mapping[str, str]) -> ConfigT:
    """Parse text values. An unknown name or a bad value raises INVALID_CONFIG and says which."""
    declared = settings_of(config_class)
    values: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in declared:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {name!r}")
        values[declared[name].name] = _parse(name, text, declared[name].default)
    return config_class(**values)


def check_settings(config: Any) -> None:
    """Called from __post_init__: refuses values outside their bounds."""
    for name, declared in settings_of(type(config)).items():
        check: Check | None = declared.metadata["setting"].check
        complaint = check(getattr(config, declared.name)) if check else None
        if complaint:
            value = getattr(config, declared.name)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value!r}: {complaint}")


def _parse(name: str, text: str, default: object) -> Any:
    assert default is not MISSING
    try:
        if isinstance(default, bool):
            return _BOOLEANS[text.strip().lower()]
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
        if isinstance(default, tuple):
            return tuple(item.strip() for item in text.split(",") if item.strip())
    except (ValueError, KeyError):
        kind = _KINDS[type(default)]
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not {kind}") from None
    return text
