"""The settings that a group can override, within the broker's bounds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.config.broker_settings.groups import GroupSettings
from moldau.config.broker_settings.share import ShareSettings
from moldau.config.broker_settings.streams import StreamsSettings
from moldau.config.checks import BY_DURATION, at_least, one_of
from moldau.config.schema import (
    Check,
    SettingGroup,
    from_properties,
    invalid_value,
    overriding,
    refused,
    setting,
)
from moldau.config.values import BOOLEAN, STRING
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

_OF_BROKER = GroupSettings.declared | ShareSettings.declared | StreamsSettings.declared


def _offset_reset(name: str, text: str) -> str | None:
    if text in {"latest", "earliest"} or BY_DURATION.fullmatch(text):
        return None
    reason = (
        f"Invalid value `{text}` for configuration {name}. The value must be either 'earliest', "
        "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )
    return invalid_value(name, text, reason)


def _as_broker(name: str, doc: str, check: Check | None = None) -> Any:
    return overriding(_OF_BROKER[f"group.{name}"], name, doc, check=check)


class GroupConfig(SettingGroup):
    consumer_assignment_interval_ms: int = _as_broker(
        "consumer.assignment.interval.ms",
        "The minimum time between two assignments of the consumer group.",
    )
    consumer_heartbeat_interval_ms: int = _as_broker(
        "consumer.heartbeat.interval.ms", "How often members of the consumer group send heartbeats."
    )
    consumer_session_timeout_ms: int = _as_broker(
        "consumer.session.timeout.ms",
        "A member of the consumer group that sends no heartbeat for this long is removed.",
    )
    share_assignment_interval_ms: int = _as_broker(
        "share.assignment.interval.ms",
        "The minimum time between two assignments of the share group.",
    )
    share_auto_offset_reset: str = setting(
        "share.auto.offset.reset",
        STRING,
        "latest",
        "Where the share group starts in a partition: at its end, at its start, or a duration "
        "before now.",
        check=Check("latest, earliest or by_duration:PnDTnHnMn.nS", _offset_reset),
    )
    share_delivery_count_limit: int = _as_broker(
        "share.delivery.count.limit",
        "How many times a record is delivered to the share group before it is archived.",
        at_least(2),
    )
    share_heartbeat_interval_ms: int = _as_broker(
        "share.heartbeat.interval.ms", "How often members of the share group send heartbeats."
    )
    share_isolation_level: str = setting(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Whether the share group gets records of uncommitted transactions.",
        check=one_of("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks: int = _as_broker(
        "share.partition.max.record.locks",
        "How many records of a partition may be delivered and not yet acknowledged.",
        at_least(100),
    )
    share_record_lock_duration_ms: int = _as_broker(
        "share.record.lock.duration.ms",
        "How long a record stays with one member of the share group before others get it.",
        at_least(1000),
    )
    share_renew_acknowledge_enable: bool = setting(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        True,
        "Whether members of the share group may extend their lock on a record.",
    )
    share_session_timeout_ms: int = _as_broker(
        "share.session.timeout.ms",
        "A member of the share group that sends no heartbeat for this long is removed.",
    )
    streams_assignment_interval_ms: int = _as_broker(
        "streams.assignment.interval.ms",
        "The minimum time between two assignments of the streams group.",
    )
    streams_heartbeat_interval_ms: int = _as_broker(
        "streams.heartbeat.interval.ms", "How often members of the streams group send heartbeats."
    )
    streams_initial_rebalance_delay_ms: int = _as_broker(
        "streams.initial.rebalance.delay.ms",
        "How long the empty streams group waits for more members before its first assignment.",
    )
    streams_num_standby_replicas: int = _as_broker(
        "streams.num.standby.replicas", "How many standby copies of each task the group has."
    )
    streams_session_timeout_ms: int = _as_broker(
        "streams.session.timeout.ms",
        "A member of the streams group that sends no heartbeat for this long is removed.",
    )


def group_config(overrides: Mapping[str, str], broker: "BrokerConfig") -> GroupConfig:
    """The settings in force for a group: its own values, limited to the broker's present bounds.
    Unknown or invalid values are ignored, because they were checked when they were set.
    """
    values = _defaults(broker)
    for name, text in overrides.items():
        declared = GroupConfig.declared.get(name)
        if declared is None:
            continue
        try:
            value = declared.parse(text)
        except KafkaError:
            continue
        low, high = _bounds(name, broker)
        value = value if low is None else max(value, low)
        values[declared.attribute] = value if high is None else min(value, high)
    return GroupConfig(**values)


def validate_group_configs(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """Raises INVALID_CONFIG for an unknown name, a bad value, or one out of bounds."""
    parsed = from_properties(GroupConfig, overrides, "group")
    own = {name: getattr(parsed, GroupConfig.declared[name].attribute) for name in overrides}
    for name, value in own.items():
        low, high = _bounds(name, broker)
        if low is not None and value < low:
            bound = _bound_name(name, "min")
            raise refused(f"{name} must be greater than or equal to {bound}")
        if high is not None and value > high:
            raise refused(f"{name} must be less than or equal to {_bound_name(name, 'max')}")
    config = GroupConfig(**(_defaults(broker) | _by_attribute(own)))
    for kind in ("consumer", "share", "streams"):
        session_ms = getattr(config, f"{kind}_session_timeout_ms")
        heartbeat_ms = getattr(config, f"{kind}_heartbeat_interval_ms")
        if session_ms <= heartbeat_ms:
            raise refused(
                f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            )


def _by_attribute(values: Mapping[str, Any]) -> dict[str, Any]:
    return {GroupConfig.declared[name].attribute: value for name, value in values.items()}


def _defaults(broker: "BrokerConfig") -> dict[str, Any]:
    return {
        declared.attribute: getattr(broker, broker.declared[declared.synonyms[0]].attribute)
        for declared in GroupConfig.declared.values()
        if declared.synonyms
    }


def _bounds(name: str, broker: "BrokerConfig") -> tuple[int | None, int | None]:
    """The broker's bounds: its settings with min and max in their names."""
    low, high = (broker.declared.get(_bound_name(name, end)) for end in ("min", "max"))
    return (
        None if low is None else getattr(broker, low.attribute),
        None if high is None else getattr(broker, high.attribute),
    )


def _bound_name(name: str, end: str) -> str:
    kind, _, rest = name.partition(".")
    if name == "streams.num.standby.replicas":
        return f"group.streams.{end}.standby.replicas"
    return f"group.{kind}.{end}.{rest}"
