"""A broker and a Spark session for all tests of pipelines that run."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.postgres_process import PASSWORD, PostgresProcess, postgres_server

from moldau.testing import ThreadBroker, broker

# Where libpq looks for it. Spark's JVM passes on the environment it was started with, and outlives
# sessions: another file's test may be the one that starts it.
os.environ["PGPASSWORD"] = PASSWORD


@pytest.fixture(scope="session")
def node() -> Iterator[ThreadBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with broker(settings) as running:
        assert isinstance(running, ThreadBroker)
        yield running


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from support.spark_sessions import local_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = local_session(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    with postgres_server() as server:
        yield server
