"""Work of the active controller that no request begins, each with a timer of its own."""

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.net.clock import Clock, Timer
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)


class PeriodicTasks:
    """Belongs to one leadership. A task that is still at work when its time comes again misses a
    turn; one that fails is logged, and comes again.
    """

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._timers: dict[str, Timer] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def every(
        self, interval_ms: float, name: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        def run() -> None:
            self._timers[name] = self._clock.call_later(interval_ms, run)
            running = self._running.get(name)
            if running is None or running.done():
                self._running[name] = self._tasks.start(self._guarded(name, work), name)

        self._timers[name] = self._clock.call_later(interval_ms, run)

    def close(self) -> None:
        """May be called by one of the tasks, which ends at its next await."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._running.values():
            task.cancel()

    async def _guarded(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (KafkaError, MetadataReplayError) as error:
            _log.error("the controller could not %s: %s", name, error)
