"""/metrics over HTTP, for Prometheus: one small GET at a time, from this machine unless told
otherwise. prometheus-client is imported when the port is opened.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

_REQUEST_BYTES_MAX = 8192
_DEADLINE_MS = 10_000
_CONNECTIONS_MAX = 16
_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Render = Callable[[], Awaitable[bytes]]


class MetricsServer:
    """Takes its port at once, so that a node that cannot have it does not even begin to start."""

    def __init__(self, host: str, port: int, clock: "Clock") -> None:
        self._clock = clock
        self._render: Render | None = None
        self._server: asyncio.Server | None = None
        self._open = 0
        self._host = f"[{host}]" if ":" in host else host
        try:
            self._socket = _bound(host, port)
        except OSError as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else _reason(error)
            raise MoldauError(f"/metrics cannot use {self._host}:{port}: {reason}") from error
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}/metrics"

    async def serve(self, render: Render) -> None:
        """`render` gives the text of the moment."""
        self._render = render
        self._server = await asyncio.start_server(
            self._answer, sock=self._socket, limit=_REQUEST_BYTES_MAX
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= _CONNECTIONS_MAX:
            writer.close()
            return
        self._open += 1
        deadline = self._clock.call_later(_DEADLINE_MS, writer.transport.abort)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, kind, body = await self._page(head)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
            )
            writer.write(body)
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            self._open -= 1
            deadline.cancel()
            writer.close()

    async def _page(self, head: bytes) -> tuple[str, str, bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return "405 Method Not Allowed", _TEXT, b"only GET\n"
        if path == b"/metrics" and self._render is not None:
            body = await self._render()
            return "200 OK", _TEXT, b"" if method == b"HEAD" else body
        return "404 Not Found", _TEXT, b"look at /metrics\n"


def _bound(host: str, port: int) -> socket.socket:
    # As bytes: a text that can not be a name would be an error of its encoding.
    family, *_, address = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0)
