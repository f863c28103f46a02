"""The examples in the producers' docstrings do what they say."""

import doctest

import pytest

from moldau.client.producing import aio_producer, producer


@pytest.mark.parametrize("module", [producer, aio_producer], ids=lambda module: module.__name__)
def test_examples_run(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 10
    assert outcome.failed == 0
