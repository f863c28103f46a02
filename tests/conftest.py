"""For all tests: `async def` tests run in an event loop of their own."""

import asyncio
import inspect

import pytest

from moldau.broker.runtime import run_in_loop

TEST_DEADLINE_S = 300


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(TEST_DEADLINE_S):
            await pyfuncitem.obj(**arguments)

    run_in_loop(bounded())
    return True
