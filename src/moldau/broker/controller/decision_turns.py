"""Turns for decisions. A small decision is made and appended in one step. A large one is made in a
thread, and is void if another one is appended meanwhile; so if it loses that race, the others wait
until it is made. They also wait while the records of a large one are appended piece by piece.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class DecisionTurns:
    def __init__(self) -> None:
        self.large = asyncio.Lock()
        """Held by the one large decision that is being made: two would void each other."""
        self._is_open = asyncio.Event()
        self._is_open.set()

    async def small(self) -> None:
        """Returns when a small decision may be made and appended, before the next await. It waits
        for one large decision at most.
        """
        while not self._is_open.is_set():
            await self._is_open.wait()

    async def after_requests(self) -> None:
        """Like `small`, after the requests that wait: a heartbeat among them may extend a session
        that a periodic check would end.
        """
        while not self._is_open.is_set():
            await self._is_open.wait()
            # The requests that waited are resumed in the same turn of the loop.
            await asyncio.sleep(0)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other decision is made meanwhile. The caller holds `large`."""
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()
