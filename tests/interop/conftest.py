"""One oracle JVM per run; a missing toolchain skips the suite with a reason, but fails it in CI."""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest
from interop.apache import ROOT, ApacheOracle, ApacheUnavailableError

CACHE = ROOT / ".interop"


def give_up(reason: ApacheUnavailableError) -> NoReturn:
    """Skip with the reason; in CI a suite that proves nothing must not look green."""
    message = f"the comparison with Apache Kafka needs a JDK and Maven: {reason}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheOracle]:
    """Apache Kafka's classes in a JVM that lives as long as the test run."""
    try:
        oracle = ApacheOracle(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason)
    with oracle:
        yield oracle
