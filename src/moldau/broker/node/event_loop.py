"""The event loop that a node runs in: uvloop where it is installed, plain asyncio elsewhere."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_in_loop(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
