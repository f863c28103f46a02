"""Each conversation about offsets in transactions, and about the markers that end them, goes as it
is written. That Apache Kafka agrees is seen in interop/.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.group_talk import talk
from interop.offset_talk import CONVERSATIONS, SETTINGS, OffsetTalk, wait_for_coordinators
from running_node import RunningNode
from wire_client import create_topic


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with RunningNode(tmp_path_factory.mktemp("node"), settings=SETTINGS) as node:
        node.start()
        create_topic(node.address, "t", partitions=4)
        wait_for_coordinators(node.address)
        yield node.address


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(address: str, path: Path) -> None:
    expected, heard = talk(address, path, OffsetTalk)
    assert heard == expected
