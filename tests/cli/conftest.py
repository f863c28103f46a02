"""One node for all command line tests of a worker; KAFKA_UNDER_TEST names another broker."""

from collections.abc import Iterator

import pytest
from cli.kafka_command import KafkaCommand
from support.running_node import kafka_under_test


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCommand]:
    with kafka_under_test(tmp_path_factory.mktemp("node")) as running:
        yield KafkaCommand(running.address)
