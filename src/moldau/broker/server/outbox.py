"""The bytes that a connection has to write, and for how long its client has read none of them."""

import asyncio
import contextlib
import logging
import os

from moldau.broker.server.memory_budget import UnreadAnswers
from moldau.storage.disk.cached_views import SIZE_MIN as VIEW_BYTES_MIN
from moldau.storage.disk.cached_views import view_of
from moldau.types import Buffer

_log = logging.getLogger(__name__)

_BYTES_MAX = 256 * 1024
"""Responses that are collected for one write."""
_CHUNKS_MAX = 1024
"""The kernel accepts no more in a call."""


class Outbox:
    __slots__ = ("_bytes", "_chunks", "_unread", "has_files", "unread_since_ms")

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []
        self._bytes = 0
        self._unread = UnreadAnswers()
        self.has_files = False
        """Part of what was added since the last `take` lies in files."""
        self.unread_since_ms: float | None = None
        """None while the client keeps up."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, chunks: list[Buffer]) -> bool:
        """Returns whether it is full now."""
        size = self._bytes
        for chunk in chunks:
            length = len(chunk)
            size += length
            if length >= VIEW_BYTES_MIN and view_of(chunk) is not None:
                self.has_files = True
        self._chunks += chunks
        self._bytes = size
        return size > _BYTES_MAX

    def take(self) -> tuple[list[Buffer], int]:
        """All chunks, and their total size."""
        taken = self._chunks, self._bytes
        self._chunks, self._bytes = [], 0
        return taken

    def write_to(self, transport: asyncio.Transport) -> int:
        """Writes everything and returns the number of bytes."""
        chunks, size = self.take()
        if self.has_files:
            self.has_files = False
            try:
                _write_with_files(chunks, size, transport)
            except (OSError, EOFError) as error:
                # Part of the response is sent. The next fetch of these records gets the error.
                _log.warning("closing a connection in the middle of a response: %r", error)
                transport.abort()
        else:
            transport.writelines(chunks)
        return size

    def unread_for_ms(self, now_ms: float, unread_bytes: int) -> float:
        """How long the client has read nothing of what waits for it. A client on a slow line may
        need minutes for a response.
        """
        if self.unread_since_ms is None:
            self._unread = UnreadAnswers()
            return 0
        if self._unread.update(unread_bytes):
            self.unread_since_ms = now_ms
        return now_ms - self.unread_since_ms

    def is_stalled(self, now_ms: float, patience_ms: float) -> bool:
        """Whether the client has read nothing for `patience_ms`, or reads far too slowly."""
        if self.unread_since_ms is None:
            return False
        return self._unread.is_read_slowly or now_ms - self.unread_since_ms > patience_ms


def _written(fileno: int, chunks: list[Buffer]) -> int:
    """Writes chunks to the socket. Returns the number of bytes that it accepted."""
    sent = 0
    for start in range(0, len(chunks), _CHUNKS_MAX):
        group = chunks[start : start + _CHUNKS_MAX]
        count = os.writev(fileno, group)
        sent += count
        if count < sum(map(len, group)):
            break
    return sent


def _write_with_files(chunks: list[Buffer], size: int, transport: asyncio.Transport) -> None:
    """Bytes that the client accepts at once leave from the page cache; the rest is read, and waits
    in the transport like everything else.
    """
    sent = 0
    if not transport.get_write_buffer_size() and not transport.is_closing():
        # A lost client or an unreadable disk is detected below.
        with contextlib.suppress(OSError):
            sent = _written(transport.get_extra_info("socket").fileno(), chunks)
    if sent == size:
        return
    for chunk in chunks:
        if sent >= len(chunk):
            sent -= len(chunk)
            continue
        view = view_of(chunk)
        transport.write(memoryview(chunk)[sent:] if view is None else view.read_from(sent))
        sent = 0
