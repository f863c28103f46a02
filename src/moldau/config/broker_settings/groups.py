"""Classic and consumer groups, and their offsets."""

from moldau.config.checks import NOT_EMPTY, at_least, one_of_any_case, some_of
from moldau.config.schema import CLUSTER_WIDE, HIGH, SettingGroup, setting
from moldau.config.values import INT, KIB, LIST, LONG, MIB, MINUTE_MS, SHORT, STRING
from moldau.types import INT32_MAX


class GroupSettings(SettingGroup):
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        INT,
        1_000,
        "The minimum time between two assignments of a consumer group.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "The assignors that the broker offers consumer groups; the first one is used if a "
        "group does not choose.",
        check=NOT_EMPTY,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a consumer group send heartbeats.",
        check=at_least(1),
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest pause between assignments that a consumer group may set.",
        check=at_least(0),
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a consumer group may set.",
        check=at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        INT,
        MINUTE_MS,
        "The longest session timeout that a consumer group may set.",
        check=at_least(1),
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT,
        INT32_MAX,
        "How many members a consumer group may have.",
        check=at_least(1),
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a group may change from the classic to the consumer protocol, back, both or "
        "neither.",
        check=one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest pause between assignments that a consumer group may set.",
        check=at_least(0),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a consumer group may set.",
        check=at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that a consumer group may set.",
        check=at_least(1),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often the topics that match a subscribed pattern are refreshed.",
        check=at_least(10_000),
        is_internal=True,
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "A member of a consumer group that sends no heartbeat for this long is removed.",
        check=at_least(1),
    )
    group_coordinator_append_linger_ms: int = setting(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "How long the group coordinator collects records before it writes them; -1 adapts to "
        "the load.",
        check=at_least(-1),
        has_effect=True,
    )
    group_coordinator_background_threads: int = setting(
        "group.coordinator.background.threads",
        INT,
        2,
        "How many threads compute assignments. Has no effect: a Moldau node has one main thread.",
        check=at_least(1),
        importance=HIGH,
    )
    group_coordinator_cached_buffer_max_bytes: int = setting(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "How large a buffer the group coordinator keeps for its next write.",
        check=at_least(512 * KIB),
        mode=CLUSTER_WIDE,
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        "The kinds of groups that are served. classic cannot be left out.",
        check=some_of("consumer", "classic", "share", "streams"),
    )
    group_coordinator_threads: int = setting(
        "group.coordinator.threads",
        INT,
        4,
        "How many threads run group coordinators. Has no effect: a Moldau node has one main "
        "thread.",
        check=at_least(1),
        importance=HIGH,
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long an empty classic group waits for more members before its first assignment.",
        has_effect=True,
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        INT,
        30 * MINUTE_MS,
        "The longest session timeout that a member of a classic group may request.",
        has_effect=True,
    )
    group_max_size: int = setting(
        "group.max.size",
        INT,
        INT32_MAX,
        "How many members a classic group may have.",
        check=at_least(1),
        has_effect=True,
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session timeout that a member of a classic group may request.",
        has_effect=True,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        INT,
        4 * KIB,
        "The longest metadata that a consumer may commit with an offset, in characters.",
        importance=HIGH,
        has_effect=True,
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        INT,
        5_000,
        "How long a commit waits for the replicas of the offsets topic.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        INT,
        5 * MIB,
        "How much of the offsets topic is read at once when a coordinator takes over.",
        check=at_least(1),
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        LONG,
        10 * MINUTE_MS,
        "How often expired offsets are removed.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        INT,
        10_080,
        "How long the offsets of an empty group are kept.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        INT,
        0,
        "The codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance=HIGH,
        has_effect=True,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        INT,
        50,
        "How many partitions the offsets topic gets. It cannot be changed later.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "How many replicas the offsets topic gets. With fewer brokers it is not created.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        INT,
        100 * MIB,
        "The segment size of the offsets topic; small segments load and compact faster.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
