"""Share groups and their coordinator."""

from moldau.config.checks import NOT_EMPTY, at_least, between
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, SettingGroup, setting
from moldau.config.values import HOUR_MS, INT, KIB, LIST, MIB, MINUTE_MS, SHORT, STRING


class ShareSettings(SettingGroup):
    group_share_assignment_interval_ms: int = setting(
        "group.share.assignment.interval.ms",
        INT,
        1_000,
        "The minimum time between two assignments of a share group.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
    group_share_assignors: tuple[str, ...] = setting(
        "group.share.assignors",
        LIST,
        ("simple",),
        "The assignors that the broker offers share groups.",
        check=NOT_EMPTY,
    )
    group_share_delivery_count_limit: int = setting(
        "group.share.delivery.count.limit",
        INT,
        5,
        "How many times a record is delivered to a share group before it is archived.",
        check=between(2, 10),
    )
    group_share_heartbeat_interval_ms: int = setting(
        "group.share.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a share group send heartbeats.",
        check=at_least(1),
    )
    group_share_initialize_retry_interval_ms: int = setting(
        "group.share.initialize.retry.interval.ms",
        INT,
        30_000,
        "The pause before the state of a share group's partition is initialized again after a "
        "failure.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
    )
    group_share_max_assignment_interval_ms: int = setting(
        "group.share.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest pause between assignments that a share group may set.",
        check=at_least(0),
    )
    group_share_max_delivery_count_limit: int = setting(
        "group.share.max.delivery.count.limit",
        INT,
        10,
        "The largest delivery count that a share group may set.",
        check=between(5, 25),
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        "group.share.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a share group may set.",
        check=at_least(1),
    )
    group_share_max_partition_max_record_locks: int = setting(
        "group.share.max.partition.max.record.locks",
        INT,
        4_000,
        "The largest number of locked records in a partition that a share group may set.",
        check=between(2_000, 10_000),
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "group.share.max.record.lock.duration.ms",
        INT,
        MINUTE_MS,
        "The longest record lock that a share group may set.",
        check=between(30_000, HOUR_MS),
    )
    group_share_max_session_timeout_ms: int = setting(
        "group.share.max.session.timeout.ms",
        INT,
        MINUTE_MS,
        "The longest session timeout that a share group may set.",
        check=at_least(1),
    )
    group_share_max_share_sessions: int = setting(
        "group.share.max.share.sessions",
        INT,
        2_000,
        "How many share sessions a broker keeps.",
        check=at_least(1),
    )
    group_share_max_size: int = setting(
        "group.share.max.size",
        INT,
        200,
        "How many members a share group may have.",
        check=between(1, 1_000),
    )
    group_share_min_assignment_interval_ms: int = setting(
        "group.share.min.assignment.interval.ms",
        INT,
        0,
        "The shortest pause between assignments that a share group may set.",
        check=at_least(0),
    )
    group_share_min_delivery_count_limit: int = setting(
        "group.share.min.delivery.count.limit",
        INT,
        2,
        "The smallest delivery count that a share group may set.",
        check=between(2, 5),
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        "group.share.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a share group may set.",
        check=at_least(1),
    )
    group_share_min_partition_max_record_locks: int = setting(
        "group.share.min.partition.max.record.locks",
        INT,
        100,
        "The smallest number of locked records in a partition that a share group may set.",
        check=between(100, 2_000),
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "group.share.min.record.lock.duration.ms",
        INT,
        15_000,
        "The shortest record lock that a share group may set.",
        check=between(1_000, 30_000),
    )
    group_share_min_session_timeout_ms: int = setting(
        "group.share.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that a share group may set.",
        check=at_least(1),
    )
    group_share_partition_max_record_locks: int = setting(
        "group.share.partition.max.record.locks",
        INT,
        2_000,
        "How many records of a partition may be delivered to a share group and not yet "
        "acknowledged.",
        check=between(100, 10_000),
    )
    group_share_persister_class_name: str = setting(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "The class that stores the state of share groups.",
        is_internal=True,
    )
    group_share_record_lock_duration_ms: int = setting(
        "group.share.record.lock.duration.ms",
        INT,
        30_000,
        "How long a record stays with one member of a share group before others get it.",
        check=between(1_000, HOUR_MS),
    )
    group_share_session_timeout_ms: int = setting(
        "group.share.session.timeout.ms",
        INT,
        45_000,
        "A member of a share group that sends no heartbeat for this long is removed.",
        check=at_least(1),
    )
    share_coordinator_append_linger_ms: int = setting(
        "share.coordinator.append.linger.ms",
        INT,
        -1,
        "How long the share coordinator collects records before it writes them; -1 adapts to "
        "the load.",
        check=at_least(-1),
    )
    share_coordinator_cached_buffer_max_bytes: int = setting(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "How large a buffer the share coordinator keeps for its next write.",
        check=at_least(512 * KIB),
        mode=CLUSTER_WIDE,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        5 * MINUTE_MS,
        "How often a new snapshot of unchanged partitions is written.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
    )
    share_coordinator_load_buffer_size: int = setting(
        "share.coordinator.load.buffer.size",
        INT,
        5 * MIB,
        "How much of the share state topic is read at once when a coordinator takes over.",
        check=at_least(1),
        importance=HIGH,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "How many updates follow one snapshot of a partition's state.",
        check=between(0, 500),
    )
    share_coordinator_state_topic_compression_codec: int = setting(
        "share.coordinator.state.topic.compression.codec",
        INT,
        0,
        "The codec of the share state topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance=HIGH,
    )
    share_coordinator_state_topic_min_isr: int = setting(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        2,
        "How many replicas of the share state topic must hold a record.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        "share.coordinator.state.topic.num.partitions",
        INT,
        50,
        "How many partitions the share state topic gets. It cannot be changed later.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        5 * MINUTE_MS,
        "How often obsolete records are removed from the share state topic.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        3,
        "How many replicas the share state topic gets. With fewer brokers it is not created.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        100 * MIB,
        "The segment size of the share state topic.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    share_coordinator_threads: int = setting(
        "share.coordinator.threads",
        INT,
        1,
        "How many threads run share coordinators. Has no effect: a Moldau node has one main "
        "thread.",
        check=at_least(1),
    )
    share_coordinator_write_timeout_ms: int = setting(
        "share.coordinator.write.timeout.ms",
        INT,
        5_000,
        "How long a write of the share coordinator waits for the replicas.",
        check=at_least(1),
        importance=HIGH,
    )
    share_fetch_purgatory_purge_interval_requests: int = setting(
        "share.fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "After how many finished share fetches the list of waiting ones is purged. Has no effect:"
        " Moldau removes them at once.",
    )
