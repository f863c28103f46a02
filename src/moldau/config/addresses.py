"""Addresses as settings write them: host:port, id@host:port, NAME://host:port."""

import re
from typing import NamedTuple

PORT_MAX = 65535

_HOST_PORT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")
_ENDPOINT = re.compile(r"(.+?)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")


class HostPort(NamedTuple):
    host: str
    port: int


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int


class Address(NamedTuple):
    """An entry of listeners: the listener's name, and where it is."""

    name: str
    host: str
    """Empty is every address of the machine."""
    port: int


def host_and_port(text: str) -> HostPort | None:
    match = _HOST_PORT.fullmatch(text)
    if match is None or not match[1] or int(match[2]) > PORT_MAX:
        return None
    return HostPort(match[1], int(match[2]))


def voter(text: str) -> Voter | None:
    number, _, rest = text.partition("@")
    address = host_and_port(rest)
    if address is None or not number.isascii() or not number.isdecimal():
        return None
    return Voter(int(number), *address)


def listener_address(text: str) -> Address | None:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        return None
    return Address(match[1].upper(), match[2], int(match[3]))
