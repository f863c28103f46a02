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
        "Brokers to contact first, as host:port; they name the others.",
        importance=HIGH,
        has_effect=True,
    )
    bootstrap_controllers: tuple[str, ...] = setting(
        "bootstrap.controllers",
        LIST,
        (),
        "Controllers to contact instead of brokers, as host:port.",
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
        "How long a call may take, including all retries.",
        check=at_least(0),
        has_effect=True,
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        BOOLEAN,
        False,
        "Whether this client pushes its metrics to brokers that request them.",
        importance=LOW,
    )
    retries: int = setting(
        "retries",
        INT,
        INT32_MAX,
        "How many times a request is retried; default.api.timeout.ms is the better limit.",
        check=between(0, INT32_MAX),
        importance=LOW,
        has_effect=True,
    )
