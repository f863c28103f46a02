"""Handles a missing toolchain: a skip with the reason."""

import os
from typing import NoReturn

import pytest
from interop.apache import ROOT, ApacheUnavailableError

CACHE = ROOT / ".interop"
APACHE_NEEDS = "the comparison with Apache Kafka needs a JDK and Maven"


def give_up(
    reason: ApacheUnavailableError, need: str = APACHE_NEEDS, *, is_optional: bool = False
) -> NoReturn:
    """Skip; but in CI a suite that proves nothing must not pass, if its toolchain is available
    there.
    """
    message = f"{need}: {reason}"
    if not is_optional and os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message)
    pytest.skip(message)
