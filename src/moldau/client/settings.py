"""What a client is told: where to begin, who it says it is, how long it waits. Kafka's names of
these settings are understood in property files.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moldau.client.errors import ClientError
from moldau.frozen import frozen
from moldau.net.request_channel import Address, ChannelOptions

DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"127.0.0.1:{DEFAULT_PORT}"
_PORT_MAX = 65535


@frozen(kw_only=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = "moldau"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_for_ms: int = 30_000
    """How long errors that may pass are tried again."""
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000

    @property
    def channel_options(self) -> ChannelOptions:
        return ChannelOptions(
            client_id=self.client_id,
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )


_NUMBERS = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "retry_for_ms",
    "retry.backoff.ms": "backoff_ms",
    "retry.backoff.max.ms": "backoff_ms_max",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
}


def client_settings(bootstrap: str, properties: Mapping[str, str] | None = None) -> ClientSettings:
    """Settings that only other kinds of clients know are passed over, as Kafka's tools do; a
    security protocol that we do not speak yet is an error.
    """
    given = dict(properties or {})
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise ClientError(f"security.protocol={protocol} is not supported yet, only PLAINTEXT")
    settings = ClientSettings(
        bootstrap=parse_addresses(bootstrap), client_id=given.get("client.id", "moldau")
    )
    numbers: dict[str, Any] = {
        attribute: _number(name, given[name])
        for name, attribute in _NUMBERS.items()
        if name in given
    }
    return replace(settings, **numbers)


def _number(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ClientError(f"{name}={text}: not a whole number") from None
    if number <= 0:
        raise ClientError(f"{name}={text}: must be positive")
    return number


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port,host:port`; IPv6 addresses in brackets; the port may be left out."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ClientError("no broker address is given; write host:port")
    return tuple(map(_parse_address, parts))


# Listeners are often copied from a broker's settings, with their protocol.
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([^\]\s]+)\]|([^:\[\]/\s]+))(?::(\d{1,5}))?")


def _parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ClientError(
            f"'{text}' is not an address; write host:port, or [address]:port for IPv6"
        )
    port = int(match[3] or DEFAULT_PORT)
    if not 0 < port <= _PORT_MAX:
        raise ClientError(f"'{text}': there is no port {port}")
    return Address(match[1] or match[2], port)
