"""The settings that one partition's log obeys: Kafka's topic settings with Kafka's defaults."""

from dataclasses import dataclass

from moldau.config.schema import at_least, between, check_settings, one_of, setting

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

FLUSH_POLICIES = ("os", "group", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "Remove old segments (delete), old values of keys (compact), or both.",
        check=one_of("delete", "compact"),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        1 << 30,
        "A segment that would grow past this is sealed and a new one starts.",
        check=between(1 << 20, INT32_MAX),
    )
    internal_segment_bytes: int = setting(
        "internal.segment.bytes",
        -1,
        "For tests: a segment size below segment.bytes' bound; -1 is unset.",
        check=between(-1, INT32_MAX),
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "A segment whose first record is older than this is sealed.",
        check=at_least(1),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "Random time taken off segment.ms, so that logs do not roll together.",
        check=at_least(0),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 << 20,
        "A segment whose index has reached this size is sealed.",
        check=at_least(4),
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        "How many bytes of log lie between two index entries.",
        check=at_least(0),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        "The largest batch that a producer may append.",
        check=at_least(0),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock stamps records: the producer's or ours.",
        check=one_of("CreateTime", "LogAppendTime"),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "How far a timestamp may lie behind our clock.",
        check=at_least(0),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        "How far a timestamp may lie ahead of our clock.",
        check=at_least(0),
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "The codec that batches are stored in; producer keeps theirs.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "gzip level; -1 is the codec's own.",
        check=lambda level: None if level == -1 or 1 <= level <= 9 else "must be -1 or 1 to 9",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", 9, "lz4 level.", check=between(1, 17)
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", 3, "zstd level.", check=between(-131072, 22)
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "Segments whose newest record is older are deleted; -1 keeps them.",
        check=at_least(-1),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "Oldest segments are deleted while the log is larger; negative keeps them.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        "How long a removed segment stays on disk as *.deleted.",
        check=at_least(0),
    )
    flush_messages: int = setting(
        "flush.messages", INT64_MAX, "fdatasync after this many records.", check=at_least(1)
    )
    flush_ms: int = setting(
        "flush.ms",
        INT64_MAX,
        "fdatasync when the oldest unsynced record is this old.",
        check=at_least(0),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "Share of uncleaned bytes from which a log is compacted.",
        check=between(0, 1),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        "How long a record stays uncompacted at least.",
        check=at_least(0),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        INT64_MAX,
        "How long a record stays uncompacted at most.",
        check=at_least(1),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long tombstones and markers stay after compaction.",
        check=at_least(0),
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def segment_size_max(self) -> int:
        return (
            self.internal_segment_bytes if self.internal_segment_bytes > 0 else self.segment_bytes
        )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
