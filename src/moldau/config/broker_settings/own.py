"""Settings that only Moldau has. Their names begin with `moldau.`."""

from moldau.config.checks import NOT_EMPTY, at_least, between, one_of
from moldau.config.schema import HIGH, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, INT, KIB, LONG, MIB, MINUTE_MS, STRING


class MoldauSettings(SettingGroup):
    moldau_flush_policy: str = setting(
        "moldau.flush.policy",
        STRING,
        "group",
        "When a record counts as written: group waits for one sync of everything of the last "
        "milliseconds, strict syncs each batch, os leaves it to the kernel as Kafka does.",
        check=one_of("group", "os", "strict"),
        importance=HIGH,
        has_effect=True,
    )
    moldau_flush_interval_ms: int = setting(
        "moldau.flush.interval.ms",
        INT,
        2,
        "Under load, the time from one sync of the policy group to the next: it covers what was "
        "appended meanwhile. An append that finds no sync running is synced at once.",
        check=at_least(0),
        has_effect=True,
    )
    moldau_accept_damage: bool = setting(
        "moldau.accept.damage",
        BOOLEAN,
        False,
        "Whether logs that lost records which were promised to be safe go on with what is left. "
        "Otherwise they refuse all requests; the damaged files are kept aside either way.",
        importance=LOW,
        has_effect=True,
    )
    moldau_reserve_bytes: int = setting(
        "moldau.reserve.bytes",
        LONG,
        4 * MIB,
        "How much room a node keeps for itself in each log directory, in order to be started and "
        "stopped when the disk is full; 0 keeps none.",
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
        "A connection that does not read its answers for this long is closed.",
        check=at_least(1),
        has_effect=True,
    )
    moldau_connection_inflight_bytes_max: int = setting(
        "moldau.connection.inflight.bytes.max",
        LONG,
        64 * MIB,
        "How many bytes of requests and answers one connection may have in memory before no more "
        "is read from it. One request is always taken.",
        check=at_least(64 * KIB),
        has_effect=True,
    )
    moldau_inflight_bytes_max: int = setting(
        "moldau.inflight.bytes.max",
        LONG,
        192 * MIB,
        "Bytes that all connections may have in memory: half for frames that are being read, half "
        "for requests that wait and answers that are not read. At the limit reading pauses, and "
        "clients that keep others waiting are disconnected.",
        check=at_least(MIB),
        has_effect=True,
    )
    moldau_metrics_host: str = setting(
        "moldau.metrics.host",
        STRING,
        "127.0.0.1",
        "The address that /metrics is served on, without a password. 0.0.0.0 is every address of "
        "the machine.",
        check=NOT_EMPTY,
        importance=LOW,
        has_effect=True,
    )
    moldau_metrics_port: int = setting(
        "moldau.metrics.port",
        INT,
        -1,
        "The port that shows metrics for Prometheus at /metrics; 0 takes a free one, -1 is off.",
        check=between(-1, 65_535),
        importance=LOW,
        has_effect=True,
    )
