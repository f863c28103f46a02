"""What all clients are told: where to begin, how long to wait, when to look again."""

from moldau.config.checks import at_least, one_of, one_of_any_case
from moldau.config.client_settings.sasl import ClientSaslSettings
from moldau.config.client_settings.tls import ClientTlsSettings
from moldau.config.schema import HIGH, LOW, SettingGroup, setting
from moldau.config.values import (
    BOOLEAN,
    INT,
    KIB,
    LIST,
    LONG,
    MINUTE_MS,
    SECOND_MS,
    STRING,
)


class ConnectionSettings(SettingGroup):
    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        LIST,
        (),
        "Brokers to begin with, as host:port; the others are found through them.",
        importance=HIGH,
        is_required=True,
        has_effect=True,
    )
    client_id: str = setting(
        "client.id", STRING, "", "The name that brokers show for this client.", has_effect=True
    )
    client_dns_lookup: str = setting(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        "What a name with several addresses means: all are tried, or each is a broker of its own.",
        check=one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        9 * MINUTE_MS,
        "A connection that was not used for this long is closed.",
        has_effect=True,
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        INT,
        64 * KIB,
        "The socket's receive buffer; -1 leaves it to the system, which is what happens.",
        check=at_least(-1),
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        INT,
        128 * KIB,
        "The socket's send buffer; -1 leaves it to the system, which is what happens.",
        check=at_least(-1),
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        LONG,
        10 * SECOND_MS,
        "How long a connection may take to be made, TLS included.",
        has_effect=True,
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30 * SECOND_MS,
        "How far that time grows while connections to a broker keep failing.",
        has_effect=True,
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        LONG,
        50,
        "The first pause before a broker is connected to again.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        LONG,
        SECOND_MS,
        "How far that pause grows while connections keep failing; a fifth is left to chance.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )


class PatienceSettings(SettingGroup):
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        30 * SECOND_MS,
        "How long a broker may take to answer.",
        check=at_least(0),
        has_effect=True,
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms",
        LONG,
        100,
        "The first pause before a request that failed is sent again.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        LONG,
        SECOND_MS,
        "How far that pause grows while the request keeps failing; a fifth is left to chance.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        LONG,
        5 * MINUTE_MS,
        "How often leaders and partitions are asked for again though nothing is wrong.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        "What happens when no known broker is there any more: begin again with "
        "bootstrap.servers, or keep trying.",
        check=one_of_any_case("REBOOTSTRAP", "NONE"),
        importance=LOW,
        has_effect=True,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        5 * MINUTE_MS,
        "A client that got no metadata for this long begins again with bootstrap.servers.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )


class MetricsSettings(SettingGroup):
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        LIST,
        (),
        "Classes that fill in values from elsewhere; Python code can do that itself.",
        importance=LOW,
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        BOOLEAN,
        True,
        "Whether a broker that asks for this client's metrics gets them.",
        importance=LOW,
    )
    metric_reporters: tuple[str, ...] = setting(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Classes that report metrics.",
        importance=LOW,
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples",
        INT,
        2,
        "How many windows a metric is computed over.",
        check=at_least(1),
        importance=LOW,
    )
    metrics_recording_level: str = setting(
        "metrics.recording.level",
        STRING,
        "INFO",
        "How much is measured.",
        check=one_of("INFO", "DEBUG", "TRACE"),
        importance=LOW,
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        LONG,
        30 * SECOND_MS,
        "How long a window of a metric is.",
        check=at_least(0),
        importance=LOW,
    )


class ClientConfig(
    ConnectionSettings, PatienceSettings, MetricsSettings, ClientTlsSettings, ClientSaslSettings
):
    """What all kinds of clients have."""
