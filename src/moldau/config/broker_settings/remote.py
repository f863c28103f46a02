"""Tiered storage of old segments, which Moldau does not support."""

from moldau.config.checks import NOT_EMPTY, at_least, between
from moldau.config.schema import CLUSTER_WIDE, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, DOUBLE, GIB, INT, LONG, MINUTE_MS, STRING
from moldau.types import INT64_MAX


class RemoteSettings(SettingGroup):
    follower_fetch_last_tiered_offset_enable: bool = setting(
        "follower.fetch.last.tiered.offset.enable",
        BOOLEAN,
        False,
        "Whether a new follower may start after the records that are already in remote storage.",
        mode=CLUSTER_WIDE,
    )
    log_local_retention_bytes: int = setting(
        "log.local.retention.bytes",
        LONG,
        -2,
        "How much of a log stays on local disk once it is in remote storage; -2 means "
        "retention.bytes.",
        check=at_least(-2),
        mode=CLUSTER_WIDE,
    )
    log_local_retention_ms: int = setting(
        "log.local.retention.ms",
        LONG,
        -2,
        "How long a segment stays on local disk once it is in remote storage; -2 means "
        "retention.ms.",
        check=at_least(-2),
        mode=CLUSTER_WIDE,
    )
    remote_fetch_max_wait_ms: int = setting(
        "remote.fetch.max.wait.ms",
        INT,
        500,
        "How long a fetch waits for remote storage.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        30_000,
        "How long looking up an offset by time waits for remote storage.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_index_file_cache_total_size_bytes: int = setting(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        GIB,
        "How much disk the cached indexes of remote segments take.",
        check=at_least(1),
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    remote_log_index_file_cache_ttl_ms: int = setting(
        "remote.log.index.file.cache.ttl.ms",
        LONG,
        15 * MINUTE_MS,
        "How long an unused index of a remote segment stays cached; -1 forever.",
        check=at_least(-1),
        importance=LOW,
        is_internal=True,
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        10,
        "How many threads copy segments to remote storage.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        INT64_MAX,
        "How fast segments are copied to remote storage at most.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_manager_copy_quota_window_num: int = setting(
        "remote.log.manager.copy.quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for the limit on copying.",
        check=at_least(1),
    )
    remote_log_manager_copy_quota_window_size_seconds: int = setting(
        "remote.log.manager.copy.quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for the limit on copying.",
        check=at_least(1),
    )
    remote_log_manager_expiration_thread_pool_size: int = setting(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        10,
        "How many threads delete old segments in remote storage.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        INT64_MAX,
        "How fast segments are read from remote storage at most.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_manager_fetch_quota_window_num: int = setting(
        "remote.log.manager.fetch.quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for the limit on reading.",
        check=at_least(1),
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = setting(
        "remote.log.manager.fetch.quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for the limit on reading.",
        check=at_least(1),
    )
    remote_log_manager_follower_thread_pool_size: int = setting(
        "remote.log.manager.follower.thread.pool.size",
        INT,
        2,
        "How many threads of followers track the segments that leaders copied.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_manager_task_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms",
        LONG,
        30_000,
        "How often the node looks for segments to copy and to delete.",
        check=at_least(1),
        importance=LOW,
    )
    remote_log_manager_task_retry_backoff_max_ms: int = setting(
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        30_000,
        "The longest pause before a failed copy is tried again.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
    )
    remote_log_manager_task_retry_backoff_ms: int = setting(
        "remote.log.manager.task.retry.backoff.ms",
        LONG,
        500,
        "The first pause before a failed copy is tried again.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
    )
    remote_log_manager_task_retry_jitter: float = setting(
        "remote.log.manager.task.retry.jitter",
        DOUBLE,
        0.2,
        "The random share of the pause before a failed copy is tried again.",
        check=between(0, 0.5),
        importance=LOW,
        is_internal=True,
    )
    remote_log_manager_thread_pool_size: int = setting(
        "remote.log.manager.thread.pool.size",
        INT,
        2,
        "How many threads schedule the work with remote storage.",
        check=at_least(1),
    )
    remote_log_metadata_custom_metadata_max_bytes: int = setting(
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        128,
        "How many bytes a storage plugin may store about a segment.",
        check=at_least(0),
        importance=LOW,
    )
    remote_log_metadata_manager_class_name: str = setting(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "The class that knows which segments are in remote storage.",
        check=NOT_EMPTY,
    )
    remote_log_metadata_manager_class_path: str | None = setting(
        "remote.log.metadata.manager.class.path",
        STRING,
        None,
        "The class path of the class in remote.log.metadata.manager.class.name.",
    )
    remote_log_metadata_manager_impl_prefix: str = setting(
        "remote.log.metadata.manager.impl.prefix",
        STRING,
        "rlmm.config.",
        "Settings with this prefix are passed to the class in "
        "remote.log.metadata.manager.class.name.",
        check=NOT_EMPTY,
    )
    remote_log_metadata_manager_listener_name: str | None = setting(
        "remote.log.metadata.manager.listener.name",
        STRING,
        None,
        "The listener to which the metadata manager connects.",
        check=NOT_EMPTY,
    )
    remote_log_reader_max_pending_tasks: int = setting(
        "remote.log.reader.max.pending.tasks",
        INT,
        100,
        "How many reads from remote storage may wait.",
        check=at_least(1),
    )
    remote_log_reader_threads: int = setting(
        "remote.log.reader.threads",
        INT,
        10,
        "How many threads read from remote storage.",
        check=at_least(1),
        mode=CLUSTER_WIDE,
    )
    remote_log_storage_manager_class_name: str | None = setting(
        "remote.log.storage.manager.class.name",
        STRING,
        None,
        "The class that stores segments in remote storage.",
        check=NOT_EMPTY,
    )
    remote_log_storage_manager_class_path: str | None = setting(
        "remote.log.storage.manager.class.path",
        STRING,
        None,
        "The class path of the class for remote storage.",
    )
    remote_log_storage_manager_impl_prefix: str = setting(
        "remote.log.storage.manager.impl.prefix",
        STRING,
        "rsm.config.",
        "Settings with this prefix are passed to the class for remote storage.",
        check=NOT_EMPTY,
    )
    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable",
        BOOLEAN,
        False,
        "Whether topics may keep old segments in remote storage. Moldau has none.",
    )
