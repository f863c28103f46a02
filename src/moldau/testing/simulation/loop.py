"""An event loop in which time passes only when nothing is left to do. It runs several processes; a
seed decides whose turn it is, and how long work in threads takes.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.testing.simulated_faults import SimulatedCrash
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.process import Pool, Process, Work, process_of
from moldau.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from moldau.testing.simulation.network import SimulatedNetwork

ResultT = TypeVar("ResultT")

CALLBACK_S = 2e-6
"""The least time that a callback takes, so that busy waiting ends."""
_THREADS = 8
_STEPS_MAX = 20_000_000


class NothingLeftError(Exception):
    """The simulation waits for something that can never happen."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Has no thread, no socket and no real time. Callbacks of one process run in their order."""

    def __init__(self, chance: Random, trace: Trace, thread_latency: Latency) -> None:
        self.trace = trace
        self.network: SimulatedNetwork | None = None
        self.thread_latency = thread_latency
        self.problems: list[str] = []
        """Errors that no code has handled."""
        self.steps = 0
        self.on_turn: Callable[[Process], None] = _nothing
        """Called after each callback, with its process: for an observer of everything."""
        self._chance = chance
        self._now_s = 0.0
        self._spent_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process]] = []
        self._tie_breaker = count()
        self._processes: list[Process] = []
        self._is_closed = False

    # Processes

    def add_process(self, process: Process) -> None:
        self._processes.append(process)

    def end_process(self, process: Process) -> None:
        process.die()
        self._processes.remove(process)

    # Time

    def time(self) -> float:
        return self._now_s + self._spent_s

    def spend(self, seconds: float) -> None:
        """The running callback, or work in a thread, takes that long."""
        self._spent_s += seconds

    # Running

    def run_until_complete(self, future: Any) -> Any:
        waited: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        asyncio._set_running_loop(self)
        try:
            while not waited.done():
                self._step()
        finally:
            asyncio._set_running_loop(None)
        return waited.result()

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _STEPS_MAX:
            raise NothingLeftError(f"still busy after {_STEPS_MAX} callbacks")
        if self._timers and self._timers[0][0] <= self._now_s:
            self._move_due()
        runnable = [each for each in self._processes if each.ready and not each.is_paused]
        if not runnable:
            self._advance()
            return
        process = runnable[0] if len(runnable) == 1 else self._chance.choice(runnable)
        handle = process.ready.popleft()
        if not handle.cancelled():
            handle._run()
            self.on_turn(process)
        self._now_s += CALLBACK_S + self._spent_s
        self._spent_s = 0.0

    def _advance(self) -> None:
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][3].is_dead):
            _, _, handle, process = heapq.heappop(self._timers)
            process.queue(handle)
        if not self._timers:
            raise NothingLeftError("nothing can happen any more")
        self._now_s = max(self._now_s, self._timers[0][0])
        self._move_due()

    def _move_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, handle, process = heapq.heappop(self._timers)
            if not handle.cancelled():
                process.queue(handle)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """From now on nothing is called any more."""
        self._is_closed = True
        self._timers.clear()
        self._processes.clear()

    def get_debug(self) -> bool:
        return False

    # Callbacks

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        process_of(context).queue(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        entry = (when, next(self._tie_breaker), handle, process_of(context))
        heapq.heappush(self._timers, entry)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio. It is dropped when it is due."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, ResultT],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[ResultT]:
        context = context or contextvars.copy_context()
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process_of(context).keep(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._is_closed and not isinstance(error, SimulatedCrash):
            self.problems.append(f"{context.get('message')}: {error!r}")

    # Threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., ResultT], *args: Any
    ) -> "asyncio.Future[ResultT]":
        """Calls it later, on this thread. A pool of one thread does one work after the other."""
        work = Work(func, args, self.create_future())
        pools = process_of(work.context).pools
        pool = pools.get(executor)
        if pool is None:
            pool = pools[executor] = Pool(getattr(executor, "_max_workers", _THREADS))
        pool.waiting.append(work)
        self._begin_work(pool)
        return work.future

    def _begin_work(self, pool: Pool) -> None:
        while pool.idle and pool.waiting:
            work = pool.waiting.popleft()
            if work.future.done():
                continue
            pool.idle -= 1
            delay_s = self.thread_latency.draw(self._chance)
            self.call_later(delay_s, self._do, pool, work, context=work.context)

    def _do(self, pool: Pool, work: Work) -> None:
        before_s, self._spent_s = self._spent_s, 0.0
        error: BaseException | None = None
        result = None
        try:
            result = work.call(*work.args)
        except BaseException as raised:  # noqa: BLE001 - raised where the work is awaited
            error = raised
        took_s, self._spent_s = self._spent_s, before_s
        process = process_of(work.context)
        self.trace.add(self.time(), process.name, "worked", took_s, type(error).__name__)
        took_s += self.thread_latency.draw(self._chance)
        self.call_later(took_s, self._done, pool, work, result, error, context=work.context)

    def _done(self, pool: Pool, work: Work, result: Any, error: BaseException | None) -> None:
        pool.idle += 1
        self._begin_work(pool)
        if work.future.done():
            return
        if error is None:
            work.future.set_result(result)
        else:
            work.future.set_exception(error)

    # Network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        assert self.network is not None
        return await self.network.resolve(host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: Any = None,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.network is not None
        if ssl is not None:
            raise NotImplementedError("TLS is not simulated")
        return await self.network.connect(protocol_factory, host, port)


def _nothing(_process: Process) -> None:
    """In place of an observer."""
