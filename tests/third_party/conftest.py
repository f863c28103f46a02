"""One node for all client suites of a worker; a fresh topic for each test."""

from collections.abc import Iterator

import pytest
from support.running_node import QUICK_SETTINGS, fresh_name, kafka_under_test
from support.wire_client import create_topic
from third_party.aiokafka_library import AiokafkaLibrary
from third_party.confluent_library import ConfluentLibrary
from third_party.kafka_python_library import KafkaPythonLibrary
from third_party.libraries import Library

# Transactions that take too long are searched for more often than every ten seconds.
SETTINGS = QUICK_SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
LIBRARIES: tuple[Library, ...] = (ConfluentLibrary(), AiokafkaLibrary(), KafkaPythonLibrary())


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_under_test(tmp_path_factory.mktemp("node"), SETTINGS) as kafka:
        yield kafka.address


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


@pytest.fixture
def topic(address: str) -> str:
    """A topic with one partition."""
    name = fresh_name("topic")
    create_topic(address, name)
    return name
