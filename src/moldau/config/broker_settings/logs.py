"""Logs on disk: defaults for topics, and background work."""

from moldau.config.checks import GZIP_LEVEL, NOT_EMPTY, at_least, between, each_of, one_of
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, PER_BROKER, SettingGroup, setting
from moldau.config.values import BOOLEAN, GIB, HOUR_MS, INT, KIB, LIST, LONG, MIB, MINUTE_MS, STRING
from moldau.types import INT64_MAX


class LogSettings(SettingGroup):
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        INT,
        -1,
        "The compression level of batches that are stored in gzip; -1 is the codec's default.",
        check=GZIP_LEVEL,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        INT,
        9,
        "The compression level of batches that are stored in lz4.",
        check=between(1, 17),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_type: str = setting(
        "compression.type",
        STRING,
        "producer",
        "The codec in which batches are stored; producer keeps the producer's codec.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        INT,
        3,
        "The compression level of batches that are stored in zstd.",
        check=between(-131_072, 22),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        LIST,
        (),
        "Log directories that get no new replicas; * means all.",
        mode=PER_BROKER,
        has_effect=True,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        "The handling of old data of topics without a value of their own: delete removes old "
        "segments, compact keeps the last value of each key. Empty keeps everything.",
        check=each_of("compact", "delete"),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_dir: tuple[str, ...] = setting(
        "log.dir",
        LIST,
        ("/tmp/kafka-logs",),  # noqa: S108
        "The log directory if log.dirs is not set.",
        check=NOT_EMPTY,
        importance=HIGH,
        has_effect=True,
    )
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms",
        LONG,
        30_000,
        "A broker stops if it cannot report a failed log directory to the controller for this "
        "long.",
        check=at_least(1),
        importance=LOW,
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs",
        LIST,
        None,
        "The log directories.",
        check=NOT_EMPTY,
        importance=HIGH,
        has_effect=True,
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        LONG,
        INT64_MAX,
        "A log is synced to disk after this many records, for topics without a value of their own.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        LONG,
        None,
        "A record is synced to disk after this time, for topics without a value of their own. The"
        " default is log.flush.scheduler.interval.ms.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the recovery points are written to disk.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        INT64_MAX,
        "How often the node looks for logs that must be synced because of their age; every second"
        " by default.",
        importance=HIGH,
        has_effect=True,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the start offsets of the logs are written to disk.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        INT,
        4 * KIB,
        "How many bytes of log lie between two index entries, for topics without a value of their"
        " own.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        INT,
        10 * MIB,
        "A segment is sealed when its index reaches this size, for topics without a value of "
        "their own.",
        check=at_least(4),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms",
        LONG,
        30_000,
        "How long after the start the background work on logs begins.",
        check=at_least(0),
        importance=LOW,
        is_internal=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "How far a record's timestamp may be ahead of the broker's clock, for topics without a "
        "value of their own.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        INT64_MAX,
        "How far a record's timestamp may be behind the broker's clock, for topics without a "
        "value of their own.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records, for topics without a value of their own: CreateTime is the "
        "producer's, LogAppendTime the broker's.",
        check=one_of("CreateTime", "LogAppendTime"),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_preallocate: bool = setting(
        "log.preallocate",
        BOOLEAN,
        False,
        "Whether a new segment allocates its whole size on disk at once, for topics without a "
        "value of their own.",
        mode=CLUSTER_WIDE,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        LONG,
        -1,
        "The oldest segments are deleted while a partition is larger than this, for topics "
        "without a value of their own; -1 sets no limit.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "How often the node looks for segments that exceed the retention time or size.",
        check=at_least(1),
        has_effect=True,
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        INT,
        168,
        "How long records are kept if neither log.retention.ms nor log.retention.minutes is given.",
        importance=HIGH,
        has_effect=True,
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        INT,
        None,
        "How long records are kept if log.retention.ms is not set.",
        importance=HIGH,
        has_effect=True,
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        LONG,
        None,
        "How long records are kept, for topics without a value of their own; -1 sets no limit. If"
        " it is not set, log.retention.minutes applies, then log.retention.hours.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_roll_hours: int = setting(
        "log.roll.hours",
        INT,
        168,
        "The age at which a segment is sealed if log.roll.ms is not set.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        INT,
        0,
        "The random time that is subtracted from the roll time if log.roll.jitter.ms is not set.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        LONG,
        None,
        "A random time up to this is subtracted from log.roll.ms, so that logs do not roll "
        "together. If it is not set, log.roll.jitter.hours applies.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        LONG,
        None,
        "The age at which a segment is sealed, for topics without a value of their own. If it is "
        "not set, log.roll.hours applies.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        INT,
        GIB,
        "A segment that would grow past this is sealed, for topics without a value of their own.",
        check=at_least(MIB),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        LONG,
        MINUTE_MS,
        "How long a removed segment stays on disk as *.deleted, for topics without a value of "
        "their own.",
        check=at_least(0),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        INT,
        1_048_588,
        "The largest batch that a producer may append, for topics without a value of their own.",
        check=at_least(0),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        INT,
        1,
        "How many replicas must hold a record before acks=all is answered, for topics without a "
        "value of their own.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "How many threads open the logs of a directory at start and close them at stop. Has no "
        "effect: a Moldau node has one main thread with helpers.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
