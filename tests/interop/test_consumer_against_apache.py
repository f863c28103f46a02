"""The consumer reads the same from Apache Kafka 4.3.1 as from Moldau, in the same ways: the tests
are are those of tests/client.
"""

from collections.abc import Iterator, Mapping

import pytest
from client.consumer.test_aio_consumer import *  # noqa: F403 - the same tests, with another broker
from client.consumer.test_consumer import *  # noqa: F403
from client.consumer.test_consumer_groups import *  # noqa: F403
from client.consumer.test_consumer_misuse import *  # noqa: F403
from client.consumer.test_consumer_tables import *  # noqa: F403
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker

pytestmark = pytest.mark.interop

# These need a broker with a movable clock, or one in the test's process.
del test_a_member_stays_while_its_user_is_busy  # noqa: F821
del test_a_group_survives_its_broker  # noqa: F821
# This one needs a broker that sends false responses.
del test_partitions_of_a_removed_member_are_lost_not_revoked  # noqa: F821


class ApacheNode:
    """The interface to a broker that these tests use."""

    def __init__(self, live: LiveBroker) -> None:
        self._live = live
        self.bootstrap = live.address

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self._live.create_topic(name, partitions, **(config or {}))


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheNode]:
    settings = {"group.min.session.timeout.ms": "1000"}
    with LiveBroker(apache, tmp_path_factory.mktemp("apache"), settings) as live:
        live.format()
        live.start()
        yield ApacheNode(live)
