"""The examples in the consumers' docstrings do what they say."""

import doctest

import pytest

from moldau.client.consumer import blocking, face


@pytest.mark.parametrize("module", [blocking, face], ids=lambda module: module.__name__)
def test_examples_run(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0
