"""The settings of one partition's log: Kafka's topic settings. Those that also exist for the broker
take type, default and rule from there.
"""

from typing import Any

from moldau.config.broker_settings.cleaner import CleanerSettings
from moldau.config.broker_settings.logs import LogSettings
from moldau.config.broker_settings.quorum import QuorumSettings
from moldau.config.broker_settings.remote import RemoteSettings
from moldau.config.checks import THROTTLED_REPLICAS, at_least
from moldau.config.schema import SettingGroup, overriding, setting
from moldau.config.values import BOOLEAN, DAY_MS, INT, LIST, LONG
from moldau.types import INT64_MAX

FLUSH_POLICIES = ("os", "group", "strict")

_OF_BROKER = (
    LogSettings.declared
    | CleanerSettings.declared
    | QuorumSettings.declared
    | RemoteSettings.declared
)


def _as_broker(name: str, synonym: str, doc: str) -> Any:
    return overriding(_OF_BROKER[synonym], name, doc)


class LogConfig(SettingGroup):
    cleanup_policy: tuple[str, ...] = _as_broker(
        "cleanup.policy",
        "log.cleanup.policy",
        "Remove old segments (delete), old values of keys (compact), both, or neither (empty).",
    )
    compression_gzip_level: int = _as_broker(
        "compression.gzip.level",
        "compression.gzip.level",
        "The compression level of batches that are stored in gzip; -1 is the codec's default.",
    )
    compression_lz4_level: int = _as_broker(
        "compression.lz4.level",
        "compression.lz4.level",
        "The compression level of batches that are stored in lz4.",
    )
    compression_type: str = _as_broker(
        "compression.type",
        "compression.type",
        "The codec in which batches are stored; producer keeps the producer's codec.",
    )
    compression_zstd_level: int = _as_broker(
        "compression.zstd.level",
        "compression.zstd.level",
        "The compression level of batches that are stored in zstd.",
    )
    delete_retention_ms: int = _as_broker(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "How long tombstones and markers stay after compaction.",
    )
    file_delete_delay_ms: int = _as_broker(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "How long a removed segment stays on disk as *.deleted.",
    )
    flush_messages: int = _as_broker(
        "flush.messages",
        "log.flush.interval.messages",
        "The log is synced to disk after this many records.",
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG,
        INT64_MAX,
        "The log is synced to disk when the oldest unsynced record is this old.",
        check=at_least(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        has_effect=True,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        "Replicas that fetch at a throttled rate, as partition:broker; * is all.",
        check=THROTTLED_REPLICAS,
    )
    index_interval_bytes: int = _as_broker(
        "index.interval.bytes",
        "log.index.interval.bytes",
        "How many bytes of log lie between two index entries.",
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes",
        INT,
        None,
        "For tests: a segment size below the bound of segment.bytes.",
        is_internal=True,
        has_effect=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        LIST,
        (),
        "Replicas that serve followers at a throttled rate, as partition:broker; * is all.",
        check=THROTTLED_REPLICAS,
    )
    local_retention_bytes: int = _as_broker(
        "local.retention.bytes",
        "log.local.retention.bytes",
        "How much of a log stays on local disk once it is in remote storage; -2 means "
        "retention.bytes.",
    )
    local_retention_ms: int = _as_broker(
        "local.retention.ms",
        "log.local.retention.ms",
        "How long a segment stays on local disk once it is in remote storage; -2 means "
        "retention.ms.",
    )
    max_compaction_lag_ms: int = _as_broker(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "How long a record stays uncompacted at most.",
    )
    max_message_bytes: int = _as_broker(
        "max.message.bytes",
        "message.max.bytes",
        "The largest batch that a producer may append.",
    )
    message_timestamp_after_max_ms: int = _as_broker(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "How far a timestamp may be ahead of the broker's clock.",
    )
    message_timestamp_before_max_ms: int = _as_broker(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "How far a timestamp may be behind the broker's clock.",
    )
    message_timestamp_type: str = _as_broker(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = _as_broker(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "The share of uncleaned bytes at which a log is compacted.",
    )
    min_compaction_lag_ms: int = _as_broker(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "How long a record stays uncompacted at least.",
    )
    min_insync_replicas: int = _as_broker(
        "min.insync.replicas",
        "min.insync.replicas",
        "How many replicas must hold a record before acks=all is answered.",
    )
    preallocate: bool = _as_broker(
        "preallocate",
        "log.preallocate",
        "Whether a new segment allocates its whole size on disk at once.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        "Whether no more segments are copied to remote storage.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        "Whether disabling remote storage deletes the data there.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        BOOLEAN,
        False,
        "Whether old segments are kept in remote storage. Moldau has none.",
    )
    retention_bytes: int = _as_broker(
        "retention.bytes",
        "log.retention.bytes",
        "The oldest segments are deleted while the partition is larger than this; a negative "
        "value keeps them.",
    )
    retention_ms: int = setting(
        "retention.ms",
        LONG,
        7 * DAY_MS,
        "Segments whose newest record is older are deleted; -1 keeps them.",
        check=at_least(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        has_effect=True,
    )
    segment_bytes: int = _as_broker(
        "segment.bytes",
        "log.segment.bytes",
        "A segment that would grow past this is sealed and a new one starts.",
    )
    segment_index_bytes: int = _as_broker(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        "A segment is sealed when its index reaches this size.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        LONG,
        0,
        "A random time up to this is subtracted from segment.ms, so that logs do not roll "
        "together.",
        check=at_least(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        has_effect=True,
    )
    segment_ms: int = setting(
        "segment.ms",
        LONG,
        7 * DAY_MS,
        "A segment whose first record is older than this is sealed.",
        check=at_least(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
        has_effect=True,
    )
    unclean_leader_election_enable: bool = _as_broker(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync may become leader if no other is left.",
    )

    @property
    def segment_size_max(self) -> int:
        return self.internal_segment_bytes or self.segment_bytes

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def segment_age_max_ms(self) -> int:
        """Includes max.compaction.lag.ms, because only sealed segments can be compacted."""
        if self.compacts:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
