"""A broker in a thread for tests that need no JVM, and one Spark session for the others."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.testing import ThreadBroker, broker


@pytest.fixture(scope="session")
def running_broker() -> Iterator[ThreadBroker]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as running:
        assert isinstance(running, ThreadBroker)
        yield running


@pytest.fixture
def node(running_broker: ThreadBroker) -> Iterator[ThreadBroker]:
    yield running_broker
    running_broker.clear_faults()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Starting Spark takes longer than most tests, so all tests of a process share it."""
    from spark.copying import environment
    from support.spark_sessions import local_session

    folder = tmp_path_factory.mktemp("spark")
    os.environ |= {"PYSPARK_PYTHON": sys.executable} | environment()
    found = local_session(folder)
    yield found
    found.stop()
