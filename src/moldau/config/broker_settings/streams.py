"""Streams groups."""

from moldau.config.checks import at_least
from moldau.config.schema import CLUSTER_WIDE, SettingGroup, setting
from moldau.config.values import INT, MINUTE_MS
from moldau.types import INT32_MAX


class StreamsSettings(SettingGroup):
    group_streams_assignment_interval_ms: int = setting(
        "group.streams.assignment.interval.ms",
        INT,
        1_000,
        "The minimum time between two assignments of a streams group.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
    group_streams_heartbeat_interval_ms: int = setting(
        "group.streams.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a streams group send heartbeats.",
        check=at_least(1),
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long an empty streams group waits for more members before its first assignment.",
        check=at_least(0),
    )
    group_streams_max_assignment_interval_ms: int = setting(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest pause between assignments that a streams group may set.",
        check=at_least(0),
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a streams group may set.",
        check=at_least(1),
    )
    group_streams_max_session_timeout_ms: int = setting(
        "group.streams.max.session.timeout.ms",
        INT,
        MINUTE_MS,
        "The longest session timeout that a streams group may set.",
        check=at_least(1),
    )
    group_streams_max_size: int = setting(
        "group.streams.max.size",
        INT,
        INT32_MAX,
        "How many members a streams group may have.",
        check=at_least(1),
    )
    group_streams_max_standby_replicas: int = setting(
        "group.streams.max.standby.replicas",
        INT,
        2,
        "The most standby copies of a task that a streams group may set.",
        check=at_least(0),
    )
    group_streams_min_assignment_interval_ms: int = setting(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "The shortest pause between assignments that a streams group may set.",
        check=at_least(0),
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a streams group may set.",
        check=at_least(1),
    )
    group_streams_min_session_timeout_ms: int = setting(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that a streams group may set.",
        check=at_least(1),
    )
    group_streams_num_standby_replicas: int = setting(
        "group.streams.num.standby.replicas",
        INT,
        0,
        "How many standby copies of each task a streams group has.",
        check=at_least(0),
    )
    group_streams_session_timeout_ms: int = setting(
        "group.streams.session.timeout.ms",
        INT,
        45_000,
        "A member of a streams group that sends no heartbeat for this long is removed.",
        check=at_least(1),
    )
