"""Settings of all clients: bootstrap servers, timeouts, backoff, metadata refresh."""

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
        "Brokers to contact first, as host:port; they name the others.",
        importance=HIGH,
        is_required=True,
        has_effect=True,
    )
    client_id: str = setting(
        "client.id",
        STRING,
        "",
        "The name of this client in the logs and metrics of brokers.",
        has_effect=True,
    )
    client_dns_lookup: str = setting(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        "How a name with several addresses is used: try all of them, or treat each as a separate "
        "broker.",
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
        "The socket's receive buffer. Has no effect: the system chooses it, as with -1.",
        check=at_least(-1),
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        INT,
        128 * KIB,
        "The socket's send buffer. Has no effect: the system chooses it, as with -1.",
        check=at_least(-1),
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        LONG,
        10 * SECOND_MS,
        "How long a connection attempt may take, including TLS.",
        has_effect=True,
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30 * SECOND_MS,
        "The longest time that a connection attempt may take, after repeated failures.",
        has_effect=True,
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        LONG,
        50,
        "The first pause before a client reconnects to a broker.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        LONG,
        SECOND_MS,
        "The longest pause before a client reconnects, after repeated failures. A fifth of each "
        "pause is random.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )


class RetrySettings(SettingGroup):
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        30 * SECOND_MS,
        "How long a broker may take to respond.",
        check=at_least(0),
        has_effect=True,
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms",
        LONG,
        100,
        "The first pause before a failed request is retried.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        LONG,
        SECOND_MS,
        "The longest pause before a failed request is retried, after repeated failures. A fifth of "
        "each pause is random.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        LONG,
        5 * MINUTE_MS,
        "How often leaders and partitions are refreshed without an error.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        "What happens when no known broker can be reached: start over with bootstrap.servers, or "
        "keep trying.",
        check=one_of_any_case("REBOOTSTRAP", "NONE"),
        importance=LOW,
        has_effect=True,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        5 * MINUTE_MS,
        "A client that got no metadata for this long starts over with bootstrap.servers.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )


class MetricsSettings(SettingGroup):
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        LIST,
        (),
        "Classes that provide values from other places; Python code can do that itself.",
        importance=LOW,
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        BOOLEAN,
        True,
        "Whether this client pushes its metrics to brokers that request them.",
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
        "The level of detail of metrics.",
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
    ConnectionSettings, RetrySettings, MetricsSettings, ClientTlsSettings, ClientSaslSettings
):
    """The settings of all kinds of clients."""
