"""Jobs run beside the event loop, all of them, and whoever asked hears how they ended."""

import asyncio
import threading
from functools import partial

import psutil

from moldau.broker.sync_threads import SyncThreads

TIMEOUT_S = 30


async def test_every_job_runs_in_a_thread_and_is_reported_in_the_loop() -> None:
    threads = SyncThreads(4, "test")
    done = asyncio.Event()
    ran: list[tuple[int, bool]] = []
    reported: list[int] = []

    def work(number: int) -> None:
        ran.append((number, threading.current_thread() is threading.main_thread()))

    def ended(number: int, error: Exception | None) -> None:
        assert error is None
        assert threading.current_thread() is threading.main_thread()
        reported.append(number)
        if len(reported) == 100:
            done.set()

    for number in range(100):
        threads.run(partial(work, number), partial(ended, number))
    await asyncio.wait_for(done.wait(), TIMEOUT_S)
    assert sorted(reported) == list(range(100))
    assert sorted(ran) == [(number, False) for number in range(100)]
    threads.close()


async def test_jobs_run_together_up_to_the_limit() -> None:
    threads = SyncThreads(3, "test")
    together = threading.Barrier(3)
    done: asyncio.Queue[Exception | None] = asyncio.Queue()

    def work() -> None:
        together.wait(TIMEOUT_S)

    for _ in range(6):
        threads.run(work, done.put_nowait)
    assert [await asyncio.wait_for(done.get(), TIMEOUT_S) for _ in range(6)] == [None] * 6
    threads.close()


async def test_what_a_job_raises_is_told_and_the_thread_goes_on() -> None:
    threads = SyncThreads(1, "test")
    done: asyncio.Queue[Exception | None] = asyncio.Queue()

    def fail() -> None:
        raise OSError("no disk")

    for work in (fail, lambda: None, fail):
        threads.run(work, done.put_nowait)
    errors = [await asyncio.wait_for(done.get(), TIMEOUT_S) for _ in range(3)]
    assert [str(error) for error in errors] == ["no disk", "None", "no disk"]
    threads.close()


async def test_nothing_is_left_open() -> None:
    before = psutil.Process().num_fds()
    SyncThreads(2, "never used").close()
    threads = SyncThreads(2, "test")
    done = asyncio.Event()
    threads.run(lambda: None, lambda _: done.set())
    await asyncio.wait_for(done.wait(), TIMEOUT_S)
    threads.close()
    assert psutil.Process().num_fds() <= before
    assert not any(thread.name.startswith("test") for thread in threading.enumerate())
