"""Responses that are too large to be encoded right away. They have a separate share of the memory,
so that a client that does not read one delays only clients with other large responses. They are
encoded one at a time when there is room, regardless of their size; requests wait for their turn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LargeAnswers:
    def __init__(self) -> None:
        self.bytes = 0
        """Bytes of large responses that are encoded and unread."""
        self.is_waited_for = False
        """Requests wait until some of these responses are read."""
        self._bytes_max = 0
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()

    def limit(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.hold(0)

    def hold(self, count: int) -> None:
        self.bytes += count
        if self.bytes < self._bytes_max:
            self._room.set()
        else:
            self._room.clear()

    @asynccontextmanager
    async def turn(self, *, is_privileged: bool) -> AsyncIterator[None]:
        """A context in which one response may be encoded and held; the others wait for it. The
        node's peers need not wait.
        """
        if is_privileged:
            yield
            return
        async with self._turn:
            try:
                while not self._room.is_set():
                    self.is_waited_for = True
                    await self._room.wait()
            finally:
                self.is_waited_for = False
            yield
