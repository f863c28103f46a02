"""The node and its roles, the controller, its quorum and the metadata log."""

from moldau.config.checks import NOT_EMPTY, SERVERS, VOTERS, at_least, some_of
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, SettingGroup, setting
from moldau.config.values import (
    BOOLEAN,
    DAY_MS,
    GIB,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    MIB,
    MINUTE_MS,
    STRING,
)
from moldau.types import INT64_MAX, BrokerId


class QuorumSettings(SettingGroup):
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Whether the controller gives leadership back to the preferred replicas from time to time.",
        importance=HIGH,
        has_effect=True,
    )
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        INT,
        2_000,
        "How often a broker sends a heartbeat to the controller. It should be at most half of the"
        " session timeout.",
        has_effect=True,
    )
    broker_id: BrokerId = setting(
        "broker.id",
        INT,
        -1,
        "The older name of node.id. If both are set they must be equal.",
        importance=HIGH,
        has_effect=True,
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        INT,
        9_000,
        "How long the controller waits for a broker's heartbeat before it fences the broker.",
        has_effect=True,
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether a stopping broker first moves its leaderships to other brokers.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        LIST,
        (),
        "The names of the listeners that controllers use. On a controller they must be among "
        "its listeners, on a broker they must not.",
        check=NOT_EMPTY,
        importance=HIGH,
        is_required=True,
        has_effect=True,
    )
    controller_performance_always_log_threshold_ms: int = setting(
        "controller.performance.always.log.threshold.ms",
        LONG,
        2_000,
        "A controller event that takes longer than this is always logged.",
        check=at_least(0),
        is_internal=True,
    )
    controller_performance_sample_period_ms: int = setting(
        "controller.performance.sample.period.ms",
        LONG,
        MINUTE_MS,
        "How often the controller logs its performance.",
        check=at_least(100),
        is_internal=True,
    )
    controller_quorum_append_linger_ms: int = setting(
        "controller.quorum.append.linger.ms",
        INT,
        25,
        "Under load, the time between two syncs of the metadata log. An append while no sync runs"
        " is synced at once.",
        check=at_least(0),
        has_effect=True,
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        "Whether a controller automatically becomes a voter of its cluster's quorum.",
        importance=LOW,
        has_effect=True,
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "Controllers to contact first to find the quorum, as host:port.",
        check=SERVERS,
        importance=HIGH,
        has_effect=True,
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        INT,
        1_000,
        "How long a voter lets others stand first, at most, after the leader has resigned or its "
        "process has ended.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        INT,
        1_000,
        "How long a candidate waits for votes before it tries again.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    controller_quorum_fetch_max_bytes: int = setting(
        "controller.quorum.fetch.max.bytes",
        INT,
        MIB,
        "How much one fetch of the metadata log returns at most; at least one batch.",
        check=at_least(1),
        importance=LOW,
        has_effect=True,
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        MIB,
        "How much one fetch of a metadata snapshot returns at most.",
        check=at_least(1),
        importance=LOW,
        has_effect=True,
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2_000,
        "A voter that cannot fetch from the leader for this long starts an election; a leader "
        "from which no majority fetches for this long resigns.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        INT,
        2_000,
        "How long a request to another controller may take.",
        check=at_least(0),
        has_effect=True,
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        INT,
        20,
        "The pause before a failed request to another controller is sent again.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        "controller.quorum.voters",
        LIST,
        (),
        "The fixed voters of the quorum, as id@host:port. Leave it empty for a quorum whose "
        "voters are in the metadata log.",
        check=VOTERS,
        importance=HIGH,
        has_effect=True,
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        INT,
        11,
        "How many samples of the rate are kept for the quota on changes of topics and partitions.",
        check=at_least(1),
        importance=LOW,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "How long one sample lasts for the quota on changes of topics and partitions.",
        check=at_least(1),
        importance=LOW,
    )
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms",
        INT,
        30_000,
        "How long a broker waits for the controller's answer.",
        has_effect=True,
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        INT,
        MINUTE_MS,
        "How long a starting broker tries to register with the controller before it gives up "
        "and stops.",
        has_effect=True,
    )
    internal_metadata_delete_delay_millis: int = setting(
        "internal.metadata.delete.delay.millis",
        LONG,
        60_000,
        "For tests: how long removed files of the metadata log stay on disk.",
        importance=LOW,
        is_internal=True,
        has_effect=True,
    )
    internal_metadata_log_segment_bytes: int | None = setting(
        "internal.metadata.log.segment.bytes",
        INT,
        None,
        "For tests: a segment size of the metadata log below the bound of "
        "metadata.log.segment.bytes.",
        importance=LOW,
        is_internal=True,
        has_effect=True,
    )
    internal_metadata_max_batch_size_in_bytes: int = setting(
        "internal.metadata.max.batch.size.in.bytes",
        INT,
        8 * MIB,
        "For tests: the largest batch that is appended to the metadata log.",
        importance=LOW,
        is_internal=True,
        has_effect=True,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often the controller looks for partitions that a replica other than the "
        "preferred one leads.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    metadata_log_dir: str | None = setting(
        "metadata.log.dir",
        STRING,
        None,
        "The directory of the metadata log. By default this is the first log directory.",
        importance=HIGH,
        has_effect=True,
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20 * MIB,
        "A metadata snapshot is written after this many bytes of records.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        HOUR_MS,
        "A metadata snapshot is written at least this often if something changed; 0 disables the "
        "time limit.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        INT,
        GIB,
        "A segment of the metadata log that would grow past this is sealed.",
        check=at_least(8 * MIB),
        importance=HIGH,
        has_effect=True,
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms",
        LONG,
        7 * DAY_MS,
        "The age at which a segment of the metadata log is sealed.",
        importance=HIGH,
        has_effect=True,
    )
    metadata_max_idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms",
        INT,
        500,
        "How often an idle active controller appends a no-op record; 0 never.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        LONG,
        100 * MIB,
        "The oldest part of the metadata log and its snapshots is deleted while they are larger "
        "than this.",
        importance=HIGH,
        has_effect=True,
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms",
        LONG,
        7 * DAY_MS,
        "How long the metadata log and its snapshots are kept.",
        importance=HIGH,
        has_effect=True,
    )
    node_id: BrokerId = setting(
        "node.id",
        INT,
        -1,
        "The number of this node. No other node of the cluster may have it.",
        check=at_least(0),
        importance=HIGH,
        is_required=True,
        has_effect=True,
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        LIST,
        (),
        "The roles of this node: broker, controller or both.",
        check=some_of("broker", "controller"),
        importance=HIGH,
        is_required=True,
        has_effect=True,
    )
    server_max_startup_time_ms: int = setting(
        "server.max.startup.time.ms",
        LONG,
        INT64_MAX,
        "How long a start may take.",
        check=at_least(0),
        is_internal=True,
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader if no other is left, which loses"
        " records.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "How often the controller looks for partitions that need an unclean leader.",
        check=at_least(1),
        is_internal=True,
        has_effect=True,
    )
    unstable_api_versions_enable: bool = setting(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "Whether request versions that are not final yet are supported.",
        importance=HIGH,
        is_internal=True,
        has_effect=True,
    )
    unstable_feature_versions_enable: bool = setting(
        "unstable.feature.versions.enable",
        BOOLEAN,
        False,
        "Whether feature levels that are not final yet may be used.",
        importance=HIGH,
        is_internal=True,
        has_effect=True,
    )
