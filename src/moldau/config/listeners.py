"""Listeners as typed values, derived from `listeners`, `advertised.listeners`,
`listener.security.protocol.map`, `controller.listener.names` and `inter.broker.listener.name` by
Kafka's rules.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.config.addresses import listener_address
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

WILDCARD_HOST = "0.0.0.0"  # noqa: S104
"""Clients cannot connect to this address, so it is never advertised."""


class SecurityProtocol(IntEnum):
    """The numbers are those in broker registrations."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Listener(NamedTuple):
    name: str
    host: str
    """If empty, every address of the machine."""
    port: int
    security_protocol: SecurityProtocol


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Protocols by listener name in upper case."""
    protocols = {}
    for entry in text.split(","):
        name, _, protocol = entry.strip().rpartition(":")
        if not entry.strip():
            continue
        if protocol.strip() not in SecurityProtocol.__members__ or not name.strip():
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"listener.security.protocol.map: {entry.strip()!r} is not NAME:PROTOCOL with one "
                f"of {', '.join(SecurityProtocol.__members__)}",
            )
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip()]
    return protocols


def parse_listeners(
    setting: str, texts: Sequence[str], protocols: Mapping[str, SecurityProtocol]
) -> tuple[Listener, ...]:
    """The listeners in a setting's value. `setting` is its name, for the error."""
    listeners = []
    for text in texts:
        address = listener_address(text)
        if address is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{setting}: {text!r} is not NAME://host:port"
            )
        if address.name not in protocols:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{setting}: listener.security.protocol.map has no protocol for {address.name}",
            )
        listeners.append(Listener(*address, protocols[address.name]))
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting}: listener names must be unique")
    return tuple(listeners)


def check_ports(listeners: Sequence[Listener]) -> None:
    """Two listeners may share a port only if one is IPv4 and the other IPv6. Any number of them may
    use port 0, which selects a free one.
    """
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in listeners:
        if listener.port != 0:
            by_port[listener.port].append(listener)
    for port, sharers in by_port.items():
        if len(sharers) > 1 and sorted(_ip_version(each.host) for each in sharers) != [4, 6]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"listeners: {' and '.join(sharer.name for sharer in sharers)} share port {port}, "
                "which only one IPv4 and one IPv6 address can share",
            )


def _ip_version(host: str) -> int:
    from ipaddress import ip_address

    try:
        return ip_address(host).version
    except ValueError:
        return 0
