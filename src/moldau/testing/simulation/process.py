"""A process of a simulation. Every callback and task belongs to the process in whose context it was
made, so that a process can be stopped in the middle: nothing of it runs any more.
"""

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Executor

_TASKS_MIN = 256
_CLOSES_MAX = 50

_running: contextvars.ContextVar["Process"] = contextvars.ContextVar("simulated_process")


class Work:
    """Work that waits for a thread of a pool."""

    __slots__ = ("args", "call", "context", "future")

    def __init__(self, call: Any, args: Any, future: "asyncio.Future[Any]") -> None:
        self.call = call
        self.args = args
        self.future = future
        self.context = contextvars.copy_context()


class Pool:
    """The threads of one executor."""

    def __init__(self, threads: int) -> None:
        self.idle = threads
        self.waiting: deque[Work] = deque()


class Process:
    """One life on a machine. `address` is the machine's."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_dead = False
        self.is_paused = False
        self.ready: deque[asyncio.Handle] = deque()
        self.pools: dict[Executor | None, Pool] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = _TASKS_MIN
        # What would have run. A coroutine that is forgotten is closed, which runs its `finally`.
        self._dropped: list[asyncio.Handle] = []

    def context(self) -> contextvars.Context:
        """A new context in which everything belongs to this process."""
        made = contextvars.copy_context()
        made.run(_running.set, self)
        return made

    def queue(self, handle: asyncio.Handle) -> None:
        if self.is_dead:
            self._dropped.append(handle)
        else:
            self.ready.append(handle)

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks_max = max(2 * len(self._tasks), _TASKS_MIN)

    def die(self) -> None:
        """As by SIGKILL: no callback runs any more, and no `finally`."""
        self.is_dead = True
        self._dropped += self.ready
        self.ready.clear()

    def dispose(self) -> None:
        """At the end of a simulation, when nothing can have an effect any more: closes coroutines
        here, so that no garbage collection does it during another simulation.
        """
        self.die()
        for task in self._tasks:
            if not task.done():
                self.context().run(_close, task.get_coro())
        self._tasks.clear()
        self._dropped.clear()
        self.pools.clear()


def process_of(context: contextvars.Context) -> Process:
    return context[_running]


def running_process() -> Process:
    return _running.get()


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSES_MAX):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - it may wait again, or meet its dead disk
            continue
        return
