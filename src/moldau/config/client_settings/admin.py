"""An admin client's settings."""

from moldau.config.checks import at_least, between
from moldau.config.client_settings.common import ClientConfig
from moldau.config.schema import HIGH, LOW, setting
from moldau.config.values import BOOLEAN, INT, LIST, LONG, MINUTE_MS
from moldau.types import INT32_MAX


class AdminConfig(ClientConfig):
    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        LIST,
        (),
        "Brokers to begin with, as host:port; the others are found through them.",
        importance=HIGH,
        has_effect=True,
    )
    bootstrap_controllers: tuple[str, ...] = setting(
        "bootstrap.controllers",
        LIST,
        (),
        "Controllers to ask instead of brokers, as host:port.",
        importance=HIGH,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        5 * MINUTE_MS,
        "A connection that was not used for this long is closed.",
        has_effect=True,
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long a call may take, all its attempts included.",
        check=at_least(0),
        has_effect=True,
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        BOOLEAN,
        False,
        "Whether a broker that asks for this client's metrics gets them.",
        importance=LOW,
    )
    retries: int = setting(
        "retries",
        INT,
        INT32_MAX,
        "How often a request is sent again; default.api.timeout.ms is the better bound.",
        check=between(0, INT32_MAX),
        importance=LOW,
        has_effect=True,
    )
