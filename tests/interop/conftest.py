"""One oracle JVM and one cluster per run. A missing toolchain skips the suite with a reason, but
fails it in CI.
"""

from collections.abc import Iterator

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.peers.live_cluster import LiveCluster


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheOracle]:
    """Apache Kafka's classes in a JVM that lives as long as the test run."""
    try:
        oracle = ApacheOracle(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason)
    with oracle:
        yield oracle


@pytest.fixture(scope="session")
def shared_cluster(
    apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    with LiveCluster(apache, tmp_path_factory.mktemp("cluster")) as running:
        running.begin()
        yield running


@pytest.fixture
def apache_cluster(shared_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """Three brokers, all in sync before every test; tests use separate topics."""
    shared_cluster.heal()
    yield shared_cluster
    shared_cluster.heal()
