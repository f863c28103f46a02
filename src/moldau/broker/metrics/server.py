"""/metrics over HTTP, for Prometheus: one small GET at a time, on loopback unless configured
otherwise. The text is made once for all concurrent requests, and takes a small part of the
node's time. prometheus-client is imported when the port is opened.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import TYPE_CHECKING

from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

_REQUEST_BYTES_MAX = 8192
_DEADLINE_MS = 10_000
_CONNECTIONS_MAX = 16
_WRITE_BYTES = 64 * 1024
_QUICK_MS = 100
"""A text that took less time to render is not cached."""
_CACHED_TIMES = 10
"""A slower one is cached for this many times as long as it took."""
_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Render = Callable[[], Awaitable[bytes]]


class MetricsServer:
    """Binds its port at once, so that a node whose port is taken does not start at all."""

    def __init__(self, host: str, port: int, clock: "Clock") -> None:
        self._clock = clock
        self._render: Render | None = None
        self._server: asyncio.Server | None = None
        # Ordered by age.
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._rendering = asyncio.Lock()
        self._text = b""
        self._text_began_ms = self._text_is_cached_until_ms = -math.inf
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
        """`render` returns the current text."""
        self._render = render
        self._server = await asyncio.start_server(
            self._answer, sock=self._socket, limit=_REQUEST_BYTES_MAX
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _CONNECTIONS_MAX:
            # A client that sends its request and reads the response is gone in a moment.
            self._drop(next(iter(self._open)))
        self._open[writer] = None
        deadline = self._clock.call_later(_DEADLINE_MS, writer.transport.abort)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, kind, body = await self._response_to(head)
            lines = (
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            pieces = (body[at : at + _WRITE_BYTES] for at in range(0, len(body), _WRITE_BYTES))
            for piece in chain([lines.encode("ascii")], pieces):
                if writer.is_closing():
                    # The connection was dropped or closed: uvloop refuses to write then.
                    return
                writer.write(piece)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            deadline.cancel()
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._open.pop(writer, None)
        writer.transport.abort()

    async def _response_to(self, head: bytes) -> tuple[str, str, bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return "405 Method Not Allowed", _TEXT, b"only GET\n"
        if path == b"/metrics" and self._render is not None:
            body = await self._current_text(self._render)
            return "200 OK", _TEXT, b"" if method == b"HEAD" else body
        return "404 Not Found", _TEXT, b"look at /metrics\n"

    async def _current_text(self, render: Render) -> bytes:
        requested_ms = self._clock.mono_ms()
        async with self._rendering:
            began_ms = self._clock.mono_ms()
            # A text begun while this request waited for its turn is as new as can be.
            if self._text_began_ms < requested_ms and began_ms >= self._text_is_cached_until_ms:
                self._text = await render()
                self._text_began_ms = began_ms
                ended_ms = self._clock.mono_ms()
                took_ms = ended_ms - began_ms
                if took_ms >= _QUICK_MS:
                    self._text_is_cached_until_ms = ended_ms + _CACHED_TIMES * took_ms
            return self._text


def _bound(host: str, port: int) -> socket.socket:
    # As bytes: a text that cannot be a host name would be an encoding error.
    family, *_, address = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0)
