"""The settings of a topic's logs, derived from the topic's own settings and the broker's."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.config.log import LogConfig
from moldau.config.schema import parsed_values, refused
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

# Settings with several names in the broker; BrokerConfig knows which one has priority.
_SEVERAL_NAMES = {
    "retention.ms": "retention_ms",
    "segment.ms": "roll_ms",
    "segment.jitter.ms": "roll_jitter_ms",
    "flush.ms": "flush_ms",
}


def log_config(overrides: Mapping[str, str], broker: "BrokerConfig") -> LogConfig:
    """The settings in force for a topic. They were checked when they were set, so unknown or
    invalid values are ignored instead of making the topic unusable; so are those without effect,
    whose texts may be long.
    """
    values = topic_defaults(broker)
    for name, text in overrides.items():
        declared = LogConfig.declared.get(name)
        if declared is None or not declared.has_effect:
            continue
        try:
            values[declared.attribute] = declared.parse(text)
        except KafkaError:
            continue
    return LogConfig(**values)


_latest: list[tuple["BrokerConfig", dict[str, Any]]] = []
"""At most one entry: a request may name thousands of topics under the same configuration."""


def topic_defaults(broker: "BrokerConfig") -> dict[str, Any]:
    """LogConfig's attributes for topics without settings of their own."""
    for known, values in _latest:
        if known is broker:
            return dict(values)
    values = {}
    for name, declared in LogConfig.declared.items():
        if declared.synonyms:
            one = broker.declared[declared.synonyms[0]].attribute
            values[declared.attribute] = getattr(broker, _SEVERAL_NAMES.get(name, one))
    _latest[:] = [(broker, values)]
    return dict(values)


def validate_topic_configs(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """Raises INVALID_CONFIG for an unknown name, a bad value, or contradicting values."""
    own = parsed_values(LogConfig, overrides, "topic")
    config = LogConfig(**topic_defaults(broker) | own)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise refused(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) "
            f"> max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise refused(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
