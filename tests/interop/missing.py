"""Handles a missing toolchain: a skip with the reason, and in CI a failure."""

from typing import NoReturn

from interop.apache import ROOT, ApacheUnavailableError
from support.missing import skip_except_in_ci

CACHE = ROOT / ".interop"
APACHE_NEEDS = "the comparison with Apache Kafka needs a JDK and Maven"


def give_up(reason: ApacheUnavailableError, need: str = APACHE_NEEDS) -> NoReturn:
    skip_except_in_ci(f"{need}: {reason}")
