"""Moldau's own settings. Their names begin with `moldau.`."""

from moldau.config.checks import NOT_EMPTY, at_least, between, one_of
from moldau.config.schema import HIGH, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, INT, KIB, LONG, MIB, MINUTE_MS, STRING


class MoldauSettings(SettingGroup):
    moldau_flush_policy: str = setting(
        "moldau.flush.policy",
        STRING,
        "group",
        "When a record counts as written: group waits for a sync that covers all appends of the "
        "last milliseconds, strict syncs each batch, os leaves it to the kernel as Kafka does.",
        check=one_of("group", "os", "strict"),
        importance=HIGH,
        has_effect=True,
    )
    moldau_flush_interval_ms: int = setting(
        "moldau.flush.interval.ms",
        INT,
        2,
        "Under load, the time between two syncs of the policy group. An append while no sync runs"
        " is synced at once.",
        check=at_least(0),
        has_effect=True,
    )
    moldau_accept_damage: bool = setting(
        "moldau.accept.damage",
        BOOLEAN,
        False,
        "Whether logs that lost acknowledged records continue with the remaining ones. Otherwise "
        "they refuse all requests. The damaged files are kept in either case.",
        importance=LOW,
        has_effect=True,
    )
    moldau_reserve_bytes: int = setting(
        "moldau.reserve.bytes",
        LONG,
        4 * MIB,
        "How much space a node reserves in each log directory, so that it can start and stop when"
        " the disk is full; 0 reserves none.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    moldau_frame_deadline_ms: int = setting(
        "moldau.frame.deadline.ms",
        INT,
        30_000,
        "A connection whose request is not complete after this time is closed.",
        check=at_least(1),
        has_effect=True,
    )
    moldau_unread_answer_deadline_ms: int = setting(
        "moldau.unread.answer.deadline.ms",
        INT,
        MINUTE_MS,
        "A connection that does not read its responses for this long is closed.",
        check=at_least(1),
        has_effect=True,
    )
    moldau_connection_inflight_bytes_max: int = setting(
        "moldau.connection.inflight.bytes.max",
        LONG,
        64 * MIB,
        "How many bytes of requests and responses one connection may have in memory before "
        "reading from it pauses. One request is always accepted.",
        check=at_least(64 * KIB),
        has_effect=True,
    )
    moldau_inflight_bytes_max: int = setting(
        "moldau.inflight.bytes.max",
        LONG,
        192 * MIB,
        "Bytes that all connections may have in memory: half for frames that are being read, half"
        " for waiting requests and unread responses. At the limit reading pauses, and clients "
        "that keep others waiting are disconnected.",
        check=at_least(MIB),
        has_effect=True,
    )
    moldau_metrics_host: str = setting(
        "moldau.metrics.host",
        STRING,
        "127.0.0.1",
        "The address that serves /metrics, without a password. 0.0.0.0 is every address of the "
        "machine.",
        check=NOT_EMPTY,
        importance=LOW,
        has_effect=True,
    )
    moldau_metrics_port: int = setting(
        "moldau.metrics.port",
        INT,
        -1,
        "The port that serves metrics for Prometheus at /metrics; 0 takes a free one, -1 is off.",
        check=between(-1, 65_535),
        importance=LOW,
        has_effect=True,
    )
