"""Waits for conditions without a signal: `until` on the event loop, `wait_for` elsewhere.
Only here may a test let time pass (tests/architecture/test_ratchets.py).
"""

import asyncio
import threading
import time
from collections.abc import Callable
from random import Random

WAIT_TIMEOUT_S = 60.0
_POLL_S = 0.02
_LOOP_POLL_S = 0.001
_TURNS = 100


async def until(condition: Callable[[], bool]) -> None:
    """Gives the event loop turns until the condition holds."""
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(_LOOP_POLL_S)


async def take_turns() -> None:
    """Lets the event loop run what is due, and what follows from it without waiting."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def pause() -> None:
    """Leaves the processor to other processes between two polls of a condition."""
    threading.Event().wait(_POLL_S)


def wait_for(
    condition: Callable[[], bool],
    what: str | Callable[[], str],
    timeout_s: float = WAIT_TIMEOUT_S,
    between: Callable[[], object] = pause,
) -> None:
    """Polls until the condition holds. `what` completes the message if it never does; `between`
    runs after each attempt, such as a consumer's poll.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            missing = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s} s for {missing}")
        between()


def wait_at_random(chance: Random, seconds_max: float) -> None:
    """Lets a random time pass before a fault. The verdict must not depend on how long it takes."""
    threading.Event().wait(chance.uniform(0, seconds_max))


def keep_for(seconds: float) -> None:
    """The duration of a fault, such as a frozen process. What follows must not need it."""
    threading.Event().wait(seconds)
