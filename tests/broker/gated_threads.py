"""Threads of the event loop whose work begins when the test says so."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

_POLL_S = 0.05


class GatedThreads(ThreadPoolExecutor):
    """Each work begins when the test opens its gate."""

    def __init__(self) -> None:
        super().__init__(4)
        self.gates: asyncio.Queue[threading.Event] = asyncio.Queue()
        self._is_over = threading.Event()

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        gate = threading.Event()
        self.gates.put_nowait(gate)

        def run() -> Any:
            while not (gate.wait(_POLL_S) or self._is_over.is_set()):
                pass
            return work(*args, **options)

        return super().submit(run)

    def open_all(self) -> None:
        self._is_over.set()


@contextmanager
def gated_threads() -> Iterator[GatedThreads]:
    threads = GatedThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    try:
        yield threads
    finally:
        threads.open_all()
