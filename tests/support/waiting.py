"""Waits for conditions without a signal: `until` on the event loop, `wait_for` elsewhere."""

import asyncio
import threading
import time
from collections.abc import Callable

WAIT_TIMEOUT_S = 60.0
_POLL_S = 0.02
_LOOP_POLL_S = 0.001


async def until(condition: Callable[[], bool]) -> None:
    """Gives the event loop turns until the condition holds."""
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(_LOOP_POLL_S)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Polls until the condition holds. `what` completes the message if it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        pause()


def pause() -> None:
    """Leaves the processor to other processes between two polls of a condition."""
    threading.Event().wait(_POLL_S)
