"""The thread of a blocking client: it runs an event loop that does the work while the user's
threads wait. `run` may be called from every other thread.
"""

import asyncio
import atexit
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import Any, ParamSpec, TypeVar

from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError
from moldau.platforms import after_fork_in_child

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_EXIT_PATIENCE_S = 5.0
_alive: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


class LoopThread:
    """An event loop in a thread."""

    def __init__(self, name: str) -> None:
        self.is_usable = True
        """False when it is closed, and in a forked process, which does not inherit threads."""
        self._is_forked = False
        self._is_finishing = False
        self._loop = _new_loop()
        # A daemon thread: a client that was never closed must not keep the program alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    def run(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Runs a coroutine and waits for its result. After `timeout_s` it is cancelled."""
        try:
            self.check_not_own()
        except ClientError:
            work.close()
            raise
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except WaitTimeoutError:
            if future.done():
                raise
            future.cancel()
            raise ClientTimeoutError(f"not done within {timeout_s} seconds") from None
        except CancelledError:
            raise ClosedError("the client was closed during the call") from None
        except BaseException:
            # Ctrl-C: no caller waits for the result any more.
            future.cancel()
            raise

    def check_not_own(self) -> None:
        """Raises ClientError in the client's own thread, which would wait for itself forever."""
        if threading.current_thread() is self._thread:
            raise ClientError(
                "a callback runs in the client's own thread and must not wait for the client; "
                "call it from another thread"
            )

    def start(self, work: Coroutine[Any, Any, Result]) -> ThreadFuture[Result]:
        """Starts a coroutine without waiting for its result."""
        if not self.is_usable:
            work.close()
            raise self.refusal()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(
        self,
        function: Callable[Arguments, object],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        """Lets the event loop call a function soon, without waiting."""
        if not self.is_usable:
            raise self.refusal()
        self._loop.call_soon_threadsafe(lambda: function(*args, **kwargs))

    def refusal(self) -> ClosedError:
        """The error that says why the thread is not usable."""
        if self._is_forked:
            return ClosedError(
                "this client was created before the process was forked; create one in each process"
            )
        return ClosedError("this client is closed")

    def close(self, patience_s: float | None = None) -> None:
        """Cancels running work and ends the thread. Closing twice does nothing."""
        if self._is_finishing:
            self._thread.join(patience_s)
        if not self.is_usable:
            return
        self.is_usable = False
        _alive.discard(self)
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(patience_s)

    def end_in_background(
        self, client: object, work: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        """For a client that is garbage collected without having been closed: warns, and ends the
        thread when `work` is done. Does not wait, since the garbage collector calls it.
        """
        if not self.is_usable:
            return
        self.is_usable = False
        self._is_finishing = True
        ending = asyncio.run_coroutine_threadsafe(work(), self._loop)
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        warnings.warn(f"{client!r} was not closed", ResourceWarning, stacklevel=2, source=client)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            _cancel_all(self._loop)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _lost_by_fork(self) -> None:
        self.is_usable = False
        self._is_forked = True


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _after_fork() -> None:
    for thread in list(_alive):
        thread._lost_by_fork()
    _alive.clear()


def _at_exit() -> None:
    for thread in list(_alive):
        thread.close(_EXIT_PATIENCE_S)


after_fork_in_child(_after_fork)
atexit.register(_at_exit)
