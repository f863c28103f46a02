"""The admin client against Apache Kafka: the same tests as against Moldau."""

from collections.abc import Iterator

import pytest
from client.admin_cases import *  # noqa: F403 - these are the tests
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def bootstrap(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LiveBroker(apache, tmp_path_factory.mktemp("admin")) as node:
        node.format()
        node.start()
        yield node.address
