"""One oracle JVM per run; a missing toolchain skips the suite with a reason, but fails it in CI."""

from collections.abc import Iterator

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.missing import CACHE, give_up


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheOracle]:
    """Apache Kafka's classes in a JVM that lives as long as the test run."""
    try:
        oracle = ApacheOracle(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason)
    with oracle:
        yield oracle
