"""Handles a missing toolchain: a skip with the reason, and in CI a failure."""

import os
from typing import NoReturn

import pytest
from interop.apache import ROOT, ApacheUnavailableError

CACHE = ROOT / ".interop"
APACHE_NEEDS = "the comparison with Apache Kafka needs a JDK and Maven"


def give_up(reason: ApacheUnavailableError, need: str = APACHE_NEEDS) -> NoReturn:
    """Skip; but in CI a suite that proves nothing must not look green."""
    message = f"{need}: {reason}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message)
    pytest.skip(message)
