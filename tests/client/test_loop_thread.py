"""The thread of a blocking client: it works for all threads, raises their errors, and ends."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError
from moldau.client.loop_thread import LoopThread
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError


@pytest.fixture
def thread() -> LoopThread:
    return LoopThread("test-loop")


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_results_and_errors_come_back(thread: LoopThread) -> None:
    async def fail() -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    assert thread.run(double(21)) == 42
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        thread.run(fail())
    thread.close()


def test_a_timeout_error_of_the_work_is_passed_on(thread: LoopThread) -> None:
    async def fail() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        thread.run(fail(), timeout_s=60)
    thread.close()


def test_many_threads_use_it_at_once(thread: LoopThread) -> None:
    found: list[int] = []
    users = [
        threading.Thread(target=lambda n=n: found.append(thread.run(double(n)))) for n in range(20)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join()
    thread.close()
    assert sorted(found) == [2 * number for number in range(20)]


def test_work_that_takes_too_long_is_cancelled(thread: LoopThread) -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ClientTimeoutError, match=r"not done within 0\.01 seconds"):
        thread.run(wait(), timeout_s=0.01)
    assert ended.wait(10)
    thread.close()


def test_closing_cancels_running_work_and_raises_in_waiting_threads(thread: LoopThread) -> None:
    started = threading.Event()
    problems: list[BaseException] = []

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    def use() -> None:
        try:
            thread.run(wait())
        except ClosedError as error:
            problems.append(error)

    user = threading.Thread(target=use)
    user.start()
    assert started.wait(10)
    thread.close()
    user.join(10)
    assert [str(problem) for problem in problems] == ["the client was closed during the call"]
    thread.close()
    with pytest.raises(ClosedError, match="this client is closed"):
        thread.run(double(1))


def test_a_callback_that_would_wait_for_itself_is_refused(thread: LoopThread) -> None:
    problems: list[str] = []
    warned = threading.Event()

    def callback() -> None:
        try:
            thread.run(double(1))
        except ClientError as error:
            problems.append(str(error))
        warned.set()

    thread.call(callback)
    assert warned.wait(10)
    thread.close()
    assert "must not wait for the client" in problems[0]


def test_a_forked_process_cannot_use_its_parents_client(thread: LoopThread) -> None:
    program = """
import asyncio, os, sys
from moldau.client.loop_thread import LoopThread
from moldau.client.errors import ClosedError

thread = LoopThread("before the fork")
if not os.fork():
    try:
        thread.run(asyncio.sleep(0))
    except ClosedError as error:
        print(error, flush=True)
    own = LoopThread("of the child")
    own.run(asyncio.sleep(0))
    own.close()
    os._exit(0)
os.wait()
thread.run(asyncio.sleep(0))
print("the parent still works")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "this client was created before the process was forked; create one in each process",
        "the parent still works",
    ]
    thread.close()


def test_a_program_ends_with_clients_still_open() -> None:
    program = """
import asyncio
from moldau.client.loop_thread import LoopThread

async def wait():
    try:
        await asyncio.Event().wait()
    finally:
        print("ended well", flush=True)

thread = LoopThread("left open")
thread.start(wait())
thread.run(asyncio.sleep(0))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )
    assert (done.stdout, done.stderr) == ("ended well\n", "")
