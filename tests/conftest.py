"""For all tests: `async def` tests run in an event loop of their own, and a machine without a C
compiler tests the Python twins. No property test fails because a machine is slow.
"""

import asyncio
import inspect
import os
import warnings

import pytest
from hypothesis import HealthCheck, settings

with warnings.catch_warnings():
    # The report's header names the loops.
    warnings.simplefilter("ignore")
    from moldau.compiled import USE_COMPILED
if not USE_COMPILED:
    # Chosen explicitly, so that no process of a test warns: tests compare the output of commands.
    os.environ["MOLDAU_PURE_PYTHON"] = "1"

from moldau.broker.node.event_loop import run_in_loop

pytest_plugins = ["support.rotation"]

# The duration of an example depends on the machine, not on our code.
settings.register_profile("moldau", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moldau")

TEST_DEADLINE_S = 300


def pytest_report_header() -> str:
    return f"moldau: compiled loops: {'yes' if USE_COMPILED else 'no (Python twins)'}"


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
