"""Compaction."""

import sys

from moldau.config.checks import at_least, between
from moldau.config.schema import CLUSTER_WIDE, SettingGroup, setting
from moldau.config.values import BOOLEAN, DAY_MS, DOUBLE, INT, KIB, LONG, MIB
from moldau.types import INT64_MAX


class CleanerSettings(SettingGroup):
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long the cleaner sleeps when no log needs compaction.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 * MIB,
        "Memory for the keys of one compaction pass, over all cleaner threads.",
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        LONG,
        DAY_MS,
        "How long tombstones and transaction markers stay in compacted topics without a value of "
        "their own.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether logs are compacted at all. Without it compacted topics, including the internal "
        "ones, only grow.",
        has_effect=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the memory for keys may become.",
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        INT,
        512 * KIB,
        "How much of a segment is read at once, over all cleaner threads.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        sys.float_info.max,
        "The most bytes per second that the cleaner reads and writes.",
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        INT64_MAX,
        "How long a record stays uncompacted at most, for topics without a value of their own.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "The share of uncleaned bytes at which a log is compacted, for topics without a value of "
        "their own.",
        check=between(0, 1),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "How long a record stays uncompacted at least, for topics without a value of their own.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        INT,
        1,
        "How many compactions run at the same time.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
