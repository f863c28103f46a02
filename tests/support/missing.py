"""Refusals of tests to run where something that they need is missing."""

import os
from typing import NoReturn

import pytest


def skip_except_in_ci(need: str) -> NoReturn:
    """In CI a suite that proves nothing must not look green."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(need)
    pytest.skip(need)
