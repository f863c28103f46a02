"""Each conversation of transactional producers goes as written.
interop/test_producers_agree_with_apache.py compares them with Apache Kafka.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.producer_talk import CONVERSATIONS, talk, wait_for_coordinator

from moldau.testing import broker


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker() as started:
        wait_for_coordinator(started.bootstrap)
        yield started.bootstrap


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(address: str, path: Path) -> None:
    expected, heard = talk(address, path)
    assert heard == expected
