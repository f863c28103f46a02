"""Fixtures for pytest, there as soon as Moldau is installed: a broker for the whole session and a
topic for one test.
"""

import itertools
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moldau.testing.thread_broker import ThreadBroker

_NAME_CHARS_MAX = 200
_numbers = itertools.count()


@pytest.fixture(scope="session")
def moldau_broker() -> "Iterator[ThreadBroker]":
    """A running broker: `moldau_broker.bootstrap` is its address."""
    # Imported here: every pytest run on a machine with Moldau loads this plugin.
    from moldau.testing import ThreadBroker, broker

    with broker() as running:
        assert isinstance(running, ThreadBroker)
        yield running


@pytest.fixture
def moldau_topic(moldau_broker: "ThreadBroker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, named after the test."""
    readable = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_CHARS_MAX]
    name = f"{readable}-{next(_numbers)}"
    moldau_broker.create_topic(name)
    return name
