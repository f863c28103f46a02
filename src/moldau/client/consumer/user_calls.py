"""Lets the event loop of a blocking client call functions of the user in the user's own thread,
which waits for the loop at that time. Such a function may use the client again.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from moldau.client.errors import ClientError, ClosedError
from moldau.client.loop_thread import LoopThread

Result = TypeVar("Result")
_Call = Callable[[], None]


class _Work(Generic[Result]):
    """A coroutine that runs in the event loop. None in the queue of calls marks its end."""

    def __init__(
        self, work: Coroutine[Any, Any, Result], calls: "SimpleQueue[_Call | None]"
    ) -> None:
        self._work = work
        self._calls = calls
        self._task: asyncio.Task[Result] | None = None
        self.is_over = False

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._note_end)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()
        if self._task is None or self.is_over:
            self._calls.put(None)

    def _note_end(self, task: "asyncio.Task[Result]") -> None:
        self.is_over = True
        if not task.cancelled():
            # Retrieved, or asyncio would warn when no caller waits for it any more.
            task.exception()
        self._calls.put(None)

    def result(self) -> Result:
        assert self._task is not None
        return self._task.result()


class UserCalls:
    """Admits one thread at a time, which may enter again from a callback."""

    def __init__(self, thread: LoopThread, what: str) -> None:
        self._thread = thread
        self._what = what
        self._lock = threading.RLock()
        self._calls: SimpleQueue[_Call | None] | None = None

    def enter(self) -> None:
        if not self._thread.is_usable:
            raise self._thread.refusal()
        if not self._lock.acquire(blocking=False):
            raise ClientError(
                f"another thread is using this {self._what}; only one may use it at a time, and "
                "only wakeup may be called from others"
            )

    def leave(self) -> None:
        self._lock.release()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine in the event loop; makes the loop's calls while it waits."""
        try:
            self.enter()
        except ClientError:
            work.close()
            raise
        before, self._calls = self._calls, SimpleQueue()
        calls = self._calls
        begun = _Work(work, calls)
        try:
            self._thread.call(begun.begin)
            while (call := calls.get()) is not None:
                call()
            return begun.result()
        except asyncio.CancelledError:
            raise ClosedError(f"the {self._what} was closed during the call") from None
        except BaseException:
            if not begun.is_over:
                # Ctrl-C: cancel it, and return only when it is over.
                self._thread.call(begun.end)
                while calls.get() is not None:
                    pass
            raise
        finally:
            self._calls = before
            self.leave()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """In the event loop: the result of a function that the user's thread calls."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def complete(result: Any, error: BaseException | None) -> None:
            if outcome.done():
                return
            if error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(error)

        def run() -> None:
            result: Any = None
            problem: BaseException | None = None
            try:
                result = function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised in the user's call
                problem = error
            loop.call_soon_threadsafe(complete, result, problem)

        calls = self._calls
        if calls is None:
            # No thread waits: the interpreter is shutting down.
            return None
        calls.put(run)
        return await outcome
