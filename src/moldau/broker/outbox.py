"""What a connection has to write, and for how long its client has read nothing of it."""

from moldau.broker.memory_budget import UnreadAnswers
from moldau.types import Buffer

_BYTES_MAX = 256 * 1024
"""Answers that are collected for one write."""


class Outbox:
    __slots__ = ("_bytes", "_chunks", "_unread", "unread_since_ms")

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []
        self._bytes = 0
        self._unread = UnreadAnswers()
        self.unread_since_ms: float | None = None
        """None while the client keeps up."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @property
    def is_full(self) -> bool:
        return self._bytes > _BYTES_MAX

    def add(self, chunks: list[Buffer]) -> None:
        self._chunks += chunks
        for chunk in chunks:
            self._bytes += len(chunk)

    def take(self) -> tuple[list[Buffer], int]:
        """All chunks, and how many bytes they are."""
        taken = self._chunks, self._bytes
        self._chunks, self._bytes = [], 0
        return taken

    def unread_for_ms(self, now_ms: float, unread_bytes: int) -> float:
        """How long the client has taken nothing of what waits for it. One behind a slow line may
        need minutes for an answer.
        """
        if self.unread_since_ms is None:
            self._unread = UnreadAnswers()
            return 0
        if self._unread.are_now(unread_bytes):
            self.unread_since_ms = now_ms
        return now_ms - self.unread_since_ms

    def is_stalled(self, now_ms: float, patience_ms: float) -> bool:
        """Whether the client has read nothing for so long, or reads far too slowly."""
        if self.unread_since_ms is None:
            return False
        return self._unread.is_read_slowly or now_ms - self.unread_since_ms > patience_ms
