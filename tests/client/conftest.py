"""A broker in a thread, with faults on demand that end with the test."""

from collections.abc import Iterator

import pytest

from moldau.testing import ThreadBroker, broker


@pytest.fixture(scope="session")
def running_broker() -> Iterator[ThreadBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    with broker(settings) as running:
        assert isinstance(running, ThreadBroker)
        yield running


@pytest.fixture
def node(running_broker: ThreadBroker) -> Iterator[ThreadBroker]:
    yield running_broker
    running_broker.clear_faults()
