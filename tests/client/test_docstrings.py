"""The examples in the clients' docstrings do what they say."""

import doctest

import pytest

from moldau.client.admin import aio as aio_admin
from moldau.client.admin import blocking as blocking_admin
from moldau.client.consumer import aio as aio_consumer
from moldau.client.consumer import blocking as blocking_consumer
from moldau.client.producer import aio as aio_producer
from moldau.client.producer import blocking as producer

MODULES = [
    producer,
    aio_producer,
    blocking_consumer,
    aio_consumer,
    blocking_admin,
    aio_admin,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_run(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0
