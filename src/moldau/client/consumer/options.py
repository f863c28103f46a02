"""Options of the parts of a consumer, from its settings. Wrong settings raise before it starts."""

import inspect
from typing import Any

from moldau.client.consumer.deserializers import deserializer
from moldau.client.errors import ConfigError, UnsupportedError, did_you_mean
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.core.consumer.assignors import ASSIGNORS, Assignor
from moldau.core.consumer.classic_membership import MemberOptions, common_protocol
from moldau.core.consumer.fetched import Deserializers
from moldau.core.consumer.resets import ResetPolicy, parse_reset
from moldau.frozen import frozen
from moldau.protocol.enums import IsolationLevel

# The names of the classes of Kafka's own client.
_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PREFETCHED = 2
"""The number of responses of one partition that may wait to be taken."""


@frozen(kw_only=True)
class FetchOptions:
    isolation: IsolationLevel
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    partition_bytes: int
    buffer_bytes_max: int
    """No more is fetched while this much waits to be taken."""
    partition_buffer_bytes_max: int
    check_crcs: bool
    rack: str
    reset: ResetPolicy
    readers: Deserializers
    request_timeout_ms: int
    metadata_max_age_ms: int


@frozen(kw_only=True)
class GroupOptions:
    member: MemberOptions
    assignors: tuple[Assignor, ...]
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    excludes_internal_topics: bool
    api_timeout_ms: int


def fetch_options(config: ConsumerConfig) -> FetchOptions:
    committed = config.isolation_level == "read_committed"
    return FetchOptions(
        isolation=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        partition_bytes=config.max_partition_fetch_bytes,
        buffer_bytes_max=max(config.fetch_max_bytes, 1),
        partition_buffer_bytes_max=max(_PREFETCHED * config.max_partition_fetch_bytes, 1),
        check_crcs=config.check_crcs,
        rack=config.client_rack,
        reset=parse_reset(config.auto_offset_reset),
        readers=(
            deserializer("key.deserializer", config.key_deserializer),
            deserializer("value.deserializer", config.value_deserializer),
        ),
        request_timeout_ms=config.request_timeout_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
    )


def group_options(config: ConsumerConfig) -> GroupOptions | None:
    """None if there is no group.id."""
    if config.group_protocol.lower() != "classic":
        raise UnsupportedError(
            f"group.protocol={config.group_protocol} is not supported yet, only classic"
        )
    if config.group_id is None:
        return None
    if not config.group_id:
        raise ConfigError("group.id is empty; give the group a name")
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={config.heartbeat_interval_ms} must be less than "
            f"session.timeout.ms={config.session_timeout_ms}"
        )
    assignors = tuple(map(_assignor, config.partition_assignment_strategy))
    if not assignors:
        raise ConfigError("partition.assignment.strategy is empty; range is the usual assignor")
    try:
        common_protocol(assignors)
    except ValueError as error:
        raise ConfigError(f"partition.assignment.strategy: {error}") from None
    return GroupOptions(
        member=MemberOptions(
            group_id=config.group_id,
            instance_id=config.group_instance_id,
            rack=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
        ),
        assignors=assignors,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        excludes_internal_topics=config.exclude_internal_topics,
        api_timeout_ms=config.default_api_timeout_ms,
    )


def _assignor(choice: Any) -> Assignor:
    if not isinstance(choice, str):
        made: Any = choice() if inspect.isclass(choice) else choice
        missing = [
            part for part in ("name", "protocols", "user_data", "assign") if not hasattr(made, part)
        ]
        if missing:
            raise ConfigError(f"the assignor {made!r} lacks {', '.join(missing)}")
        own: Assignor = made
        return own
    name = _JAVA_NAMES.get(choice.rsplit(".", 1)[-1], choice)
    if name not in ASSIGNORS:
        raise ConfigError(
            f"partition.assignment.strategy: unknown assignor '{choice}', known are "
            f"{', '.join(ASSIGNORS)}{did_you_mean(name, ASSIGNORS)}"
        )
    return ASSIGNORS[name]()
