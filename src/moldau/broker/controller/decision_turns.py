"""Who may decide now. A small decision is made and appended in one step. A large one is made in a
thread, and is void if another one is appended meanwhile; so if it loses that race, the others wait
until it is made.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DecisionTurns:
    def __init__(self) -> None:
        self.large = asyncio.Lock()
        """Held by the one large decision that is being made: two would void each other."""
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._deferred: dict[str, Callable[[], None]] = {}

    async def small(self) -> None:
        """Returns when a small decision may be made and appended, before the next await. It waits
        for one large decision at most.
        """
        while not self._is_open.is_set():
            await self._is_open.wait()

    def defer(self, name: str, work: Callable[[], None]) -> bool:
        """Whether a task that decides has to wait. It is then called when it may decide; a task of
        the same name replaces it.
        """
        if self._is_open.is_set():
            return False
        self._deferred[name] = work
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other decision is made meanwhile. The caller holds `large`."""
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()
            # After the requests that waited: a heartbeat among them may extend a session that a
            # deferred check would end. Before the next large one, which waits for `large`.
            deferred, self._deferred = self._deferred, {}
            for work in deferred.values():
                asyncio.get_running_loop().call_soon(work)
