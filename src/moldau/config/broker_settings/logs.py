"""Logs on disk: what topics get that do not say themselves, and the work in the background."""

from moldau.config.checks import GZIP_LEVEL, NOT_EMPTY, at_least, between, each_of, one_of
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, PER_BROKER, SettingGroup, setting
from moldau.config.values import BOOLEAN, GIB, HOUR_MS, INT, KIB, LIST, LONG, MIB, MINUTE_MS, STRING
from moldau.types import INT64_MAX


class LogSettings(SettingGroup):
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        INT,
        -1,
        "The level for batches that are stored in gzip; -1 is the codec's own.",
        check=GZIP_LEVEL,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        INT,
        9,
        "The level for batches that are stored in lz4.",
        check=between(1, 17),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_type: str = setting(
        "compression.type",
        STRING,
        "producer",
        "The codec that batches are stored in; producer keeps what the producer chose.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        INT,
        3,
        "The level for batches that are stored in zstd.",
        check=between(-131_072, 22),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        LIST,
        (),
        "Log directories that get no new replicas; * means all of them.",
        mode=PER_BROKER,
        has_effect=True,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        "What happens to old data of topics that do not say themselves: delete removes old "
        "segments, compact keeps the last value of each key. Empty keeps everything.",
        check=each_of("compact", "delete"),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_dir: tuple[str, ...] = setting(
        "log.dir",
        LIST,
        ("/tmp/kafka-logs",),  # noqa: S108
        "The log directory if log.dirs is not given.",
        check=NOT_EMPTY,
        importance=HIGH,
        has_effect=True,
    )
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms",
        LONG,
        30_000,
        "A broker that could not tell the controller of a failed log directory for this long "
        "stops.",
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
        "A log is synced to disk after this many records, for topics that do not say themselves.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        LONG,
        None,
        "A record is synced to disk after this time, for topics that do not say themselves. "
        "Without it log.flush.scheduler.interval.ms counts.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the recovery points are written down.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        INT64_MAX,
        "How often the node looks for logs that have to be synced because of their age; every "
        "second unless it is given.",
        importance=HIGH,
        has_effect=True,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the start offsets of the logs are written down.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        INT,
        4 * KIB,
        "How many bytes of log lie between two index entries, for topics that do not say "
        "themselves.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        INT,
        10 * MIB,
        "A segment whose index has reached this size is sealed, for topics that do not say "
        "themselves.",
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
        "How far a record's timestamp may lie ahead of the broker's clock, for topics that do "
        "not say themselves.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        INT64_MAX,
        "How far a record's timestamp may lie behind the broker's clock, for topics that do "
        "not say themselves.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records, for topics that do not say themselves: CreateTime is the "
        "producer's, LogAppendTime the broker's.",
        check=one_of("CreateTime", "LogAppendTime"),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_preallocate: bool = setting(
        "log.preallocate",
        BOOLEAN,
        False,
        "Whether a new segment takes its whole size on disk at once, for topics that do not "
        "say themselves.",
        mode=CLUSTER_WIDE,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        LONG,
        -1,
        "The oldest segments are deleted while a partition is larger than this, for topics "
        "that do not say themselves; -1 sets no limit.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "How often segments that are too old or too many are looked for.",
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
        "How long records are kept if log.retention.ms is not given.",
        importance=HIGH,
        has_effect=True,
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        LONG,
        None,
        "How long records are kept, for topics that do not say themselves; -1 sets no limit. "
        "Without it log.retention.minutes counts, then log.retention.hours.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_roll_hours: int = setting(
        "log.roll.hours",
        INT,
        168,
        "How old a segment becomes before it is sealed if log.roll.ms is not given.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        INT,
        0,
        "How much random time is taken off if log.roll.jitter.ms is not given.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        LONG,
        None,
        "Random time up to this is taken off log.roll.ms, so that logs do not roll together. "
        "Without it log.roll.jitter.hours counts.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        LONG,
        None,
        "How old a segment becomes before it is sealed, for topics that do not say "
        "themselves. Without it log.roll.hours counts.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        INT,
        GIB,
        "A segment that would grow past this is sealed, for topics that do not say themselves.",
        check=at_least(MIB),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        LONG,
        MINUTE_MS,
        "How long a removed segment stays on disk as *.deleted, for topics that do not say "
        "themselves.",
        check=at_least(0),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        INT,
        1_048_588,
        "The largest batch that a producer may append, for topics that do not say themselves.",
        check=at_least(0),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        INT,
        1,
        "How many replicas must hold a record before acks=all is answered, for topics that do "
        "not say themselves.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "How many threads open the logs of a directory at start and close them at the stop. One "
        "Moldau node is one thread with helpers, so that this changes nothing.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
