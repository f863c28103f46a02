"""Each conversation about offsets in transactions, and about the markers that end them, goes as
written. tests/interop compares them with Apache Kafka.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interop.group_talk import go_on, talk
from interop.offset_talk import CONVERSATIONS, HANDOVER, SETTINGS, OffsetTalk, wait_for_coordinators
from support.running_node import RunningNode
from support.wire_client import create_topic


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


@pytest.mark.parametrize("ends", [RunningNode.stop, RunningNode.kill], ids=["stopped", "killed"])
def test_a_new_start_finds_transactions_as_they_were(
    tmp_path: Path, ends: Callable[[RunningNode], object]
) -> None:
    with RunningNode(tmp_path, settings=SETTINGS) as node:
        node.start()
        create_topic(node.address, "t", partitions=4)
        wait_for_coordinators(node.address)
        conversation = OffsetTalk(node.address)
        try:
            expected, heard = go_on(conversation, HANDOVER / "before.txt")
            assert heard == expected
            ends(node)
            conversation.wire.close()
            node.start()
            wait_for_coordinators(node.address)
            expected, heard = go_on(conversation, HANDOVER / "after.txt")
            assert heard == expected
        finally:
            conversation.wire.close()
