"""Fixtures for pytest, available as soon as Moldau is installed: a broker for the whole session and
a topic for one test. Faults and clock changes of a test are undone after it.
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
    """Ignores the warning about missing compiled loops, so that suites that turn warnings into
    errors can run without them, more slowly.
    """
    config.addinivalue_line("filterwarnings", "ignore:moldau was installed without its compiled")


@pytest.fixture(scope="session")
def moldau_broker(request: pytest.FixtureRequest) -> "Iterator[ThreadBroker]":
    """A broker that runs for the whole session, a `moldau.testing.ThreadBroker`.

        def test_orders(moldau_broker):
            producer = moldau.Producer(moldau_broker.bootstrap)

    After each test its faults and delays are cleared, a moved clock is set back, and a stopped
    broker is started again. Topics and records stay, so give each test topics of its own
    (`moldau_topic`).
    """
    # Before the import of a class that needs modules Windows lacks.
    refuse_windows("a broker for tests")
    # Imported here: every pytest run on a machine with Moldau loads this plugin.
    from moldau.testing import ThreadBroker, broker

    with broker() as running:
        assert isinstance(running, ThreadBroker)
        request.config.stash[_BROKER] = running
        yield running
        del request.config.stash[_BROKER]


# Not a fixture: one that every test uses would start a broker for tests that need none, or would
# miss tests that request the broker while they run.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> "Generator[None]":
    """Runs after the teardown of the test's own fixtures, which may use the broker."""
    yield
    used = item.config.stash.get(_BROKER, None)
    if used is not None:
        used.reset()


@pytest.fixture
def moldau_topic(moldau_broker: "ThreadBroker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition on `moldau_broker`, derived from the test's name.

        def test_orders(moldau_broker, moldau_topic):
            with moldau.Producer(moldau_broker.bootstrap) as producer:
                producer.send(moldau_topic, b"order")

    Each test that requests the fixture gets another topic.
    """
    readable = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_CHARS_MAX]
    name = f"{readable}-{next(_numbers)}"
    moldau_broker.create_topic(name)
    return name
