"""The owner of background tasks: it knows them all, logs their failures, and ends them."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from moldau.net.loop_holds import Measured, ended

_log = logging.getLogger(__name__)


class Tasks:
    """A task that fails is logged once and does not affect others. `close` ends them all. With
    `are_measured`, steps that hold the loop are reported.
    """

    def __init__(self, *, are_measured: bool = False) -> None:
        self._are_measured = are_measured
        # Not a set: tasks end in the order in which they began, not in that of their addresses.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        name: str,
        *,
        expects: tuple[type[Exception], ...] = (),
    ) -> asyncio.Task[Any]:
        """`expects`: failures that are handled where the task is awaited, and need no log line."""
        if self._are_measured:
            coroutine = Measured(coroutine, partial(ended, "task", name))
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(partial(self._ended, expects))
        if self._closed:
            task.cancel()
        return task

    def __len__(self) -> int:
        return len(self._running)

    async def wait(self) -> None:
        """Waits until all have ended on their own."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        self._closed = True
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)

    def _ended(self, expects: tuple[type[Exception], ...], task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, expects):
            _log.error("%s failed", task.get_name(), exc_info=error)
