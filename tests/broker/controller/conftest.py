"""Fixtures of the controller's tests."""

from collections.abc import Iterator
from itertools import count

import pytest

from moldau.net import stopwatch


@pytest.fixture
def tiny_slices() -> Iterator[None]:
    """Every slice is over at once, however fast the machine is."""
    seconds = count()
    with stopwatch.replaced_by(lambda: float(next(seconds))):
        yield
