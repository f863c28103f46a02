"""Threads that wait for the disk so that the event loop need not. A job is handed over and its end
reported through pipes, a fifth of what a thread pool's futures cost: with the policy `group` there
are hundreds of syncs in a second.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_TOKEN = b"."
_TOKENS_MAX = 4096


class _Job(NamedTuple):
    work: Callable[[], None]
    ended: Callable[[Exception | None], None]


class SyncThreads:
    """`run` belongs to the event loop, and so do the callbacks. `close` when no job is running."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._jobs: deque[_Job] = deque()
        self._ended: deque[tuple[_Job, Exception | None]] = deque()
        self._pipes: _Pipes | None = None

    def run(self, work: Callable[[], None], ended: Callable[[Exception | None], None]) -> None:
        """Runs `work` in a thread, then `ended` in the event loop with what it raised."""
        pipes = self._pipes or self._open()
        self._running += 1
        if len(self._threads) < min(self._running, self._threads_max):
            thread = threading.Thread(
                target=self._serve,
                args=(pipes,),
                name=f"{self._name}-{len(self._threads)}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        self._jobs.append(_Job(work, ended))
        os.write(pipes.jobs_in, _TOKEN)

    def close(self) -> None:
        assert not self._running, "a job is running"
        pipes, self._pipes = self._pipes, None
        if pipes is not None:
            asyncio.get_running_loop().remove_reader(pipes.ended_out)
            os.close(pipes.jobs_in)
            for thread in self._threads:
                thread.join()
            for end in pipes[1:]:
                os.close(end)

    def _open(self) -> "_Pipes":
        jobs_out, jobs_in = os.pipe()
        ended_out, ended_in = os.pipe()
        os.set_blocking(ended_out, False)
        self._pipes = _Pipes(jobs_in, jobs_out, ended_in, ended_out)
        asyncio.get_running_loop().add_reader(ended_out, self._report, ended_out)
        return self._pipes

    def _serve(self, pipes: "_Pipes") -> None:
        """In a thread, until its pipe is closed."""
        while os.read(pipes.jobs_out, 1):
            job, error = self._jobs.popleft(), None
            try:
                job.work()
            except Exception as raised:  # noqa: BLE001 - told to whoever asked for the job
                error = raised
            self._ended.append((job, error))
            os.write(pipes.ended_in, _TOKEN)

    def _report(self, ended_out: int) -> None:
        for _ in os.read(ended_out, _TOKENS_MAX):
            job, error = self._ended.popleft()
            self._running -= 1
            job.ended(error)


class _Pipes(NamedTuple):
    """One token for each job, and one for each that ended."""

    jobs_in: int
    jobs_out: int
    ended_in: int
    ended_out: int
