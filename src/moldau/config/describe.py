"""DescribeConfigs: the value of a setting, its source, and its synonyms, by Kafka's rules."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.config.broker import BrokerConfig
from moldau.config.client_metrics import ClientMetricsConfig
from moldau.config.dynamic import DYNAMIC_SETTINGS
from moldau.config.group import GroupConfig, group_config
from moldau.config.layers import Layers, broker_synonyms
from moldau.config.schema import Setting, SettingGroup, from_properties
from moldau.config.topic import log_config

UNKNOWN_KIND = 0


class Source(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...] = ()
    """All values by priority, without those of secrets."""
    kind: int = UNKNOWN_KIND
    is_sensitive: bool = False
    is_read_only: bool = False
    documentation: str | None = None


def describe_broker(config: BrokerConfig) -> list[Described]:
    """All settings of a node. Internal settings and those of plugins are included only if set."""
    names = {name for name, declared in config.declared.items() if not declared.is_internal}
    layers = config.layers
    return [
        _of_broker(name, _broker_value(name, config), layers, config)
        for name in sorted(names.union(layers.static, layers.cluster, layers.own))
    ]


def describe_broker_defaults(config: BrokerConfig) -> list[Described]:
    """Only the settings that are set at run time for all brokers."""
    only = Layers({}, cluster=config.layers.cluster)
    return [
        _of_broker(name, text, only, None) for name, text in sorted(config.layers.cluster.items())
    ]


def describe_topic(overrides: Mapping[str, str], config: BrokerConfig) -> list[Described]:
    in_force = log_config(overrides, config)
    return _describe_group(in_force, overrides, Source.TOPIC, config)


def describe_consumer_group(overrides: Mapping[str, str], config: BrokerConfig) -> list[Described]:
    in_force = group_config(overrides, config)
    described = _describe_group(in_force, overrides, Source.GROUP, config)
    return [_with_default(one) for one in described]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[Described]:
    known = {name: text for name, text in overrides.items() if name in ClientMetricsConfig.declared}
    in_force = from_properties(ClientMetricsConfig, known, "client metrics")
    return _describe_group(in_force, overrides, Source.CLIENT_METRICS, None)


def _of_broker(
    name: str, value: str | None, layers: Layers, config: BrokerConfig | None
) -> Described:
    declared = _broker_declaration(name)
    is_sensitive = declared is None or declared.is_sensitive
    synonyms = _broker_synonyms_of(
        name, layers, with_defaults=config is not None, hide=is_sensitive
    )
    return Described(
        name=name,
        value=None if is_sensitive else value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        kind=UNKNOWN_KIND if declared is None else declared.kind,
        is_sensitive=is_sensitive,
        is_read_only=name not in DYNAMIC_SETTINGS,
        documentation=declared.doc if declared is not None and declared.name == name else None,
    )


def _broker_declaration(name: str) -> Setting | None:
    return (
        BrokerConfig.declared.get(name)
        or DYNAMIC_SETTINGS.get(name)
        or BrokerConfig.overridden(name)
    )


def _broker_value(name: str, config: BrokerConfig) -> str | None:
    declared = config.declared.get(name)
    if declared is not None:
        return declared.text(getattr(config, declared.attribute))
    layers = config.layers
    return layers.own.get(name, layers.cluster.get(name, layers.static.get(name)))


def _broker_synonyms_of(
    name: str, layers: Layers, *, with_defaults: bool, hide: bool
) -> tuple[Synonym, ...]:
    """All values of a broker's setting, without synonyms that have priority over its name."""
    names = _names_of(name)
    defaults = _defaults_of(names) if with_defaults else {}
    synonyms = [
        Synonym(synonym, None if hide else layer[synonym], source)
        for layer, source in (
            (layers.own, Source.DYNAMIC_BROKER),
            (layers.cluster, Source.DYNAMIC_DEFAULT_BROKER),
            (layers.static, Source.STATIC_BROKER),
            (defaults, Source.DEFAULT),
        )
        for synonym in names
        if synonym in layer
    ]
    first = next((index for index, each in enumerate(synonyms) if each.name == name), len(synonyms))
    return tuple(synonyms[first:])


def _names_of(name: str) -> tuple[str, ...]:
    everybodys = BrokerConfig.overridden(name)
    return broker_synonyms(name) if everybodys is None else (name, everybodys.name)


def _defaults_of(names: Iterable[str]) -> dict[str, str]:
    defaults = {}
    for name in names:
        declared = BrokerConfig.declared.get(name)
        if declared is not None and not declared.is_required:
            text = declared.text(declared.default)
            if text is not None:
                defaults[name] = text
    return defaults


def _describe_group(
    in_force: SettingGroup,
    overrides: Mapping[str, str],
    source: Source,
    config: BrokerConfig | None,
) -> list[Described]:
    names = {name for name, declared in in_force.declared.items() if not declared.is_internal}
    return [
        _of_group(name, in_force, overrides, source, config)
        for name in sorted(names.union(overrides))
    ]


def _of_group(
    name: str,
    in_force: SettingGroup,
    overrides: Mapping[str, str],
    source: Source,
    config: BrokerConfig | None,
) -> Described:
    declared = in_force.declared.get(name)
    if declared is None:
        # Written by another version, so its meaning is unknown: treat it as secret.
        return Described(name, None, source, (Synonym(name, None, source),), is_sensitive=True)
    value = declared.text(getattr(in_force, declared.attribute))
    synonyms: tuple[Synonym, ...] = ()
    if declared.synonyms and config is not None:
        synonyms = _broker_synonyms_of(
            declared.synonyms[0], config.layers, with_defaults=True, hide=declared.is_sensitive
        )
    if name in overrides:
        synonyms = (Synonym(name, value, source), *synonyms)
    return Described(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        kind=declared.kind,
        documentation=declared.doc,
    )


def _with_default(described: Described) -> Described:
    """Adds the default of a group's setting that has no counterpart in the broker."""
    declared = GroupConfig.declared.get(described.name)
    if declared is None or declared.synonyms:
        return described
    default = Synonym(described.name, declared.text(declared.default), Source.DEFAULT)
    return described._replace(synonyms=(*described.synonyms, default))
