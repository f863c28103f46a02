"""The network as a node's listeners use it: addresses, bound ports, the servers behind them. A node
gets it from outside. Connections that are opened go through the event loop instead.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from moldau.protocol.errors import MoldauError

Addresses = list[tuple[socket.AddressFamily, str]]
NewProtocol = Callable[[], asyncio.BaseProtocol]


class Server(Protocol):
    def close(self) -> None:
        """Accepts no more connections."""


class BoundPort(Protocol):
    """A port that is taken. Clients wait for `serve` from `listen` on."""

    @property
    def port(self) -> int: ...
    def listen(self, queue_size: int) -> None: ...
    async def serve(self, new_protocol: NewProtocol, queue_size: int) -> Server:
        """From now on the port belongs to the server."""

    def close(self) -> None: ...


class Network(Protocol):
    def addresses_of(self, host: str) -> Addresses:
        """The addresses to bind: all interfaces of both families for an empty host. Raises
        MoldauError if the host is unknown.
        """

    def bind(
        self, family: socket.AddressFamily, address: str, port: int, buffers: Mapping[int, int]
    ) -> BoundPort:
        """Port 0 selects a free one. `buffers`: sizes by socket option, inherited by connections
        that are accepted later. Raises OSError.
        """

    def full_name(self) -> str:
        """The host name that other machines use for this one."""


class SystemPort:
    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self.port: int = bound.getsockname()[1]

    def listen(self, queue_size: int) -> None:
        self._bound.listen(queue_size)

    async def serve(self, new_protocol: NewProtocol, queue_size: int) -> Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(new_protocol, sock=self._bound, backlog=queue_size)

    def close(self) -> None:
        self._bound.close()


class SystemNetwork:
    """The machine's own."""

    def addresses_of(self, host: str) -> Addresses:
        return addresses_of(host)

    def bind(
        self, family: socket.AddressFamily, address: str, port: int, buffers: Mapping[int, int]
    ) -> SystemPort:
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            for option, size in buffers.items():
                bound.setsockopt(socket.SOL_SOCKET, option, size)
            bound.bind((address, port))
            bound.setblocking(False)
        except OSError:
            bound.close()
            raise
        return SystemPort(bound)

    def full_name(self) -> str:
        return socket.getfqdn()


def addresses_of(host: str) -> Addresses:
    """See `Network.addresses_of`."""
    if not host:
        both = [(socket.AF_INET, "0.0.0.0")]  # noqa: S104
        if socket.has_dualstack_ipv6():
            both.append((socket.AF_INET6, "::"))
        return both
    try:
        # As bytes: a string would load the tables for international names at every start.
        resolved = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MoldauError(f"the host {host!r} is unknown: {error.strerror}") from error
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in resolved)
    return list(unique)
