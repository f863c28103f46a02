"""The forms of addresses in settings: host:port, id@host:port, NAME://host:port."""

from typing import NamedTuple

from moldau.types import BrokerId

PORT_MAX = 65535
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"{DEFAULT_HOST}:{DEFAULT_PORT}"

_HOST_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")


class HostPort(NamedTuple):
    host: str
    port: int


class Voter(NamedTuple):
    node_id: BrokerId
    host: str
    port: int


class Address(NamedTuple):
    """An entry of `listeners`: the listener's name and its address."""

    name: str
    host: str
    """If empty, every address of the machine."""
    port: int


def host_and_port(text: str) -> HostPort | None:
    """Returns None if the text is not an address. The host must not be empty."""
    address = _split(text.rpartition("://")[2])
    return address if address is not None and address.host else None


def voter(text: str) -> Voter | None:
    number, _, rest = text.partition("@")
    address = host_and_port(rest)
    if address is None or not (number.isascii() and number.isdecimal()):
        return None
    return Voter(BrokerId(int(number)), *address)


def listener_address(text: str) -> Address | None:
    name, separator, rest = text.partition("://")
    address = _split(rest)
    if address is None or not separator or not name.strip():
        return None
    return Address(name.upper(), *address)


def _split(text: str) -> HostPort | None:
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not _HOST_CHARACTERS.issuperset(host):
        return None
    if not (port.isascii() and port.isdecimal()) or len(port) > len(str(PORT_MAX)):
        return None
    return HostPort(host, int(port)) if int(port) <= PORT_MAX else None
