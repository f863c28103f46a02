"""Answers that are too large to be written whenever somebody asks for them. They have a share of
the memory of their own, so that whoever does not read one keeps no ordinary client waiting. One
after the other is written when there is room, whatever its size; who asks waits for its turn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LargeAnswers:
    def __init__(self) -> None:
        self.bytes = 0
        """Of those that are written, and not read."""
        self.is_waited_for = False
        """Somebody could be answered if some of them were read."""
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
        """Inside one is written and held. The node's peers need not wait."""
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
