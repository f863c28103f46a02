"""The settings of a client from its arguments: `config={"linger.ms": 5}` and `linger_ms=5` mean the
same. Values are Python's, or texts as in Kafka's property files.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from moldau.client.errors import ConfigError
from moldau.config.client_settings.common import ClientConfig
from moldau.config.schema import Setting, unknown_setting
from moldau.config.values import VALUE_FORMS, Kind
from moldau.protocol.errors import KafkaError
from moldau.types import INT16_MAX, INT32_MAX, INT64_MAX

_log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=ClientConfig)

_WHOLE_MAX = {Kind.SHORT: INT16_MAX, Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}


def client_config(
    config_class: type[ConfigT],
    config: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
) -> ConfigT:
    """Checks the settings. Raises ConfigError, which says what to write instead. None stands for an
    argument that is not given.
    """
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"config must be a dict of names and values, not {type(config).__name__}")
    values: dict[str, Any] = {}
    by_attribute = {declared.attribute: declared for declared in config_class.declared.values()}
    try:
        for name, value in (config or {}).items():
            declared = config_class.declared.get(name)
            if declared is None:
                raise unknown_setting(str(name), config_class.declared)
            values[declared.attribute] = _value(declared, value)
        for name, value in arguments.items():
            declared = by_attribute.get(name)
            if declared is None:
                raise unknown_setting(name, by_attribute)
            if value is None:
                continue
            if name in values:
                raise ConfigError(f"{name} is given twice, also as config['{declared.name}']")
            values[name] = _value(declared, value)
        made = config_class(**values)
    except KafkaError as error:
        raise ConfigError(error.detail) from None
    _warn_of_ineffective(made, values)
    return made


def known_part(config_class: type[ConfigT], properties: Mapping[str, str]) -> ConfigT:
    """The settings from a property file that may also hold those of other kinds of clients."""
    known = {name: text for name, text in properties.items() if name in config_class.declared}
    return client_config(config_class, known, {})


def _value(declared: Setting, value: Any) -> Any:
    if value is None:
        return declared.default
    if isinstance(value, str):
        # Spaces around a password belong to it.
        return value if declared.kind is Kind.PASSWORD else declared.parse(value)
    taken = _python_value(declared, value)
    if taken is None:
        shown = "" if declared.is_sensitive else f"={value!r}"
        raise ConfigError(f"{declared.name}{shown} is not {VALUE_FORMS[declared.kind]}")
    declared.verify(taken)
    return taken


def _python_value(declared: Setting, value: Any) -> Any:
    """The value for a setting; None if it is of a wrong type."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match declared.kind:
        case Kind.BOOLEAN:
            return value if isinstance(value, bool) else None
        case Kind.SHORT | Kind.INT | Kind.LONG:
            most = _WHOLE_MAX[declared.kind]
            return value if is_whole and -most - 1 <= value <= most else None
        case Kind.DOUBLE:
            return float(value) if is_whole or isinstance(value, float) else None
        case Kind.LIST:
            return tuple(value) if isinstance(value, list | tuple) else None
        case Kind.STRING:
            return str(value) if is_whole else None
        case Kind.CLASS:
            return value
        case Kind.PASSWORD:
            return None


def _warn_of_ineffective(config: ClientConfig, given: Mapping[str, Any]) -> None:
    for declared in config.declared.values():
        is_changed = given.get(declared.attribute, declared.default) != declared.default
        if is_changed and not declared.has_effect:
            _log.warning("%s has no effect in this client", declared.name)
