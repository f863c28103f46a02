"""Settings of a client's connections: bootstrap servers, client id, security, timeouts."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.client.cluster.security import Security, security_of
from moldau.client.errors import ClientError
from moldau.config.addresses import DEFAULT_PORT, PORT_MAX
from moldau.core.client.backoff import Backoff
from moldau.frozen import frozen
from moldau.net.request_channel import Address, ChannelOptions
from moldau.types import INT32_MAX

if TYPE_CHECKING:
    from moldau.config.client_settings.admin import AdminConfig
    from moldau.config.client_settings.common import ClientConfig

DEFAULT_CLIENT_ID = "moldau"
RETRIES_MAX = INT32_MAX


@frozen(kw_only=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    connect_timeout: Backoff = Backoff(10_000, 30_000)
    reconnect: Backoff = Backoff(50, 1_000)
    retry: Backoff = Backoff(100, 1_000)
    request_timeout_ms: int = 30_000
    retry_for_ms: int = 30_000
    """How long retriable errors are retried."""
    retries_max: int = RETRIES_MAX
    metadata_max_age_ms: int = 300_000
    rebootstraps: bool = True
    """Whether to start again with `bootstrap` when no known broker can be reached."""
    rebootstrap_after_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    security: Security = Security()

    def channel_options(self, connect_timeout_ms: float) -> ChannelOptions:
        return ChannelOptions(
            client_id=self.client_id,
            connect_timeout_ms=round(connect_timeout_ms),
            request_timeout_ms=self.request_timeout_ms,
            tls=self.security.tls,
        )


def cluster_settings(
    config: "ClientConfig", *, retry_for_ms: int, retries_max: int = RETRIES_MAX
) -> ClientSettings:
    """Raises ConfigError."""
    return ClientSettings(
        bootstrap=parse_addresses(",".join(map(str, config.bootstrap_servers))),
        client_id=config.client_id or DEFAULT_CLIENT_ID,
        connect_timeout=Backoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        ),
        reconnect=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
        retry=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        request_timeout_ms=config.request_timeout_ms,
        retry_for_ms=retry_for_ms,
        retries_max=retries_max,
        metadata_max_age_ms=config.metadata_max_age_ms,
        rebootstraps=config.metadata_recovery_strategy.lower() == "rebootstrap",
        rebootstrap_after_ms=config.metadata_recovery_rebootstrap_trigger_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        security=security_of(config),
    )


def client_settings(bootstrap: str, properties: Mapping[str, str] | None = None) -> ClientSettings:
    """The settings of a command line tool. Settings of other kinds of clients are ignored."""
    if not properties:
        return ClientSettings(bootstrap=parse_addresses(bootstrap))
    # Imported late: a tool without a file starts faster without two hundred declarations.
    from moldau.client.config import known_part
    from moldau.config.client_settings.admin import AdminConfig

    config = known_part(AdminConfig, properties).with_changes(bootstrap_servers=(bootstrap,))
    return admin_settings(config)


def admin_settings(config: "AdminConfig") -> ClientSettings:
    return cluster_settings(
        config, retry_for_ms=config.default_api_timeout_ms, retries_max=config.retries
    )


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port,host:port`; IPv6 addresses in brackets; the port may be left out."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ClientError("no broker address; write host:port")
    return tuple(map(_parse_address, parts))


# Addresses are often copied from a broker's listeners, with their protocol.
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([^\]\s]+)\]|([^:\[\]/\s]+))(?::(\d{1,5}))?")


def _parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ClientError(
            f"'{text}' is not an address; write host:port, or [address]:port for IPv6"
        )
    port = int(match[3] or DEFAULT_PORT)
    if not 0 < port <= PORT_MAX:
        raise ClientError(f"'{text}': {port} is not a port number")
    return Address(match[1] or match[2], port)
