"""Replication between brokers, and quota windows."""

from moldau.config.checks import at_least
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, SettingGroup, setting
from moldau.config.values import CLASS, INT, KIB, LONG, MIB, STRING


class ReplicationSettings(SettingGroup):
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for the quota on moves between log directories.",
        check=at_least(1),
        importance=LOW,
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for the quota on moves between log directories.",
        check=at_least(1),
        importance=LOW,
    )
    broker_rack: str | None = setting(
        "broker.rack",
        STRING,
        None,
        "The rack of this broker. Replicas are spread over racks, and consumers may read from a "
        "replica in their own.",
        has_effect=True,
    )
    client_quota_callback_class: str | None = setting(
        "client.quota.callback.class",
        CLASS,
        None,
        "A class that computes the quotas of clients.",
        importance=LOW,
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        INT,
        1,
        "How many replicas a topic gets if its creator does not set a number.",
        has_effect=True,
    )
    delete_records_purgatory_purge_interval_requests: int = setting(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        1,
        "After how many finished DeleteRecords requests the list of waiting ones is purged. Has "
        "no effect: Moldau removes them at once.",
    )
    fetch_purgatory_purge_interval_requests: int = setting(
        "fetch.purgatory.purge.interval.requests",
        INT,
        1_000,
        "After how many finished fetches the list of waiting ones is purged. Has no effect: "
        "Moldau removes them at once.",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "How many threads move replicas between log directories.",
        importance=HIGH,
    )
    num_replica_fetchers: int = setting(
        "num.replica.fetchers",
        INT,
        1,
        "How many connections fetch from each other broker.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    producer_purgatory_purge_interval_requests: int = setting(
        "producer.purgatory.purge.interval.requests",
        INT,
        1_000,
        "After how many finished produce requests the list of waiting ones is purged. Has no "
        "effect: Moldau removes them at once.",
    )
    quota_window_num: int = setting(
        "quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for client quotas.",
        check=at_least(1),
        importance=LOW,
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for client quotas.",
        check=at_least(1),
        importance=LOW,
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        INT,
        1_000,
        "How long a follower pauses after a failed fetch.",
        check=at_least(0),
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        INT,
        MIB,
        "How many bytes of one partition a follower requests; at least one batch is returned.",
        check=at_least(0),
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        INT,
        1,
        "How many bytes a follower's fetch waits for.",
        importance=HIGH,
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        INT,
        10 * MIB,
        "How many bytes a follower requests in one fetch over all partitions.",
        check=at_least(0),
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        "How long a follower's fetch waits for data. Must not exceed replica.lag.time.max.ms.",
        importance=HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5_000,
        "How often the high watermarks are written to disk.",
        importance=HIGH,
        has_effect=True,
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        importance=HIGH,
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        STRING,
        None,
        "The class that chooses which replica a consumer reads from.",
    )
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes",
        INT,
        64 * KIB,
        "The receive buffer of the sockets that followers fetch through.",
        importance=HIGH,
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        "How long a follower's request may take. At least replica.fetch.wait.max.ms.",
        importance=HIGH,
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for the replication quota.",
        check=at_least(1),
        importance=LOW,
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for the replication quota.",
        check=at_least(1),
        importance=LOW,
    )
