"""Closes the files and directory locks that a test has opened."""

from collections.abc import Iterator

import pytest
from storage.log_maker import close_everything


@pytest.fixture(autouse=True)
def close_what_the_test_opened() -> Iterator[None]:
    yield
    close_everything()
