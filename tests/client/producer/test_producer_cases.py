"""The cases of both producers, on Moldau."""

import pytest
from client.producer_cases import *  # noqa: F403 - these are the tests

from moldau.testing import ThreadBroker


@pytest.fixture
def bootstrap(node: ThreadBroker) -> str:
    return node.bootstrap
