"""Fixtures for pytest, there as soon as Moldau is installed: a broker for the whole session and a
topic for one test. What a test did to the broker ends with the test.
"""

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from moldau.platforms import refuse_windows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from moldau.testing.thread_broker import ThreadBroker

_NAME_CHARS_MAX = 200
_numbers = itertools.count()
_BROKER: "pytest.StashKey[ThreadBroker]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """A suite that turns warnings into errors runs without the compiled loops too, slower."""
    config.addinivalue_line("filterwarnings", "ignore:moldau was installed without its compiled")


@pytest.fixture(scope="session")
def moldau_broker(request: pytest.FixtureRequest) -> "Iterator[ThreadBroker]":
    """A running broker: `moldau_broker.bootstrap` is its address. Faults, delays and the clock are
    reset after each test.
    """
    # Before the class is imported, which needs what Windows does not have.
    refuse_windows("a broker for tests")
    # Imported here: every pytest run on a machine with Moldau loads this plugin.
    from moldau.testing import ThreadBroker, broker

    with broker() as running:
        assert isinstance(running, ThreadBroker)
        request.config.stash[_BROKER] = running
        yield running
        del request.config.stash[_BROKER]


# Not a fixture: one that is used by every test would start a broker for those that need none, or
# miss those that ask for it while they run.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> "Generator[None]":
    """Behind the teardown of the test's own fixtures, which may use the broker."""
    yield
    used = item.config.stash.get(_BROKER, None)
    if used is not None:
        used.reset()


@pytest.fixture
def moldau_topic(moldau_broker: "ThreadBroker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, named after the test."""
    readable = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_CHARS_MAX]
    name = f"{readable}-{next(_numbers)}"
    moldau_broker.create_topic(name)
    return name
