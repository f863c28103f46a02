"""Each conversation about transactional offsets, and about the markers that end the transactions,
proceeds as written: with Apache Kafka first, then with Moldau.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.group_talk import talk
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from interop.offset_talk import CONVERSATIONS, SETTINGS, OffsetTalk, wait_for_coordinators

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["apache", "moldau"])
def node(
    request: pytest.FixtureRequest, apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveNode]:
    folder = tmp_path_factory.mktemp(request.param)
    live: LiveNode
    if request.param == "apache":
        live = LiveBroker(apache, folder, SETTINGS)
    else:
        live = LiveMoldau(folder, SETTINGS)
    with live:
        live.format()
        live.start()
        live.create_topic("t", partitions=4)
        wait_for_coordinators(live.address)
        yield live


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_proceeds_as_written(node: LiveNode, path: Path) -> None:
    expected, heard = talk(node.address, path, OffsetTalk)
    assert heard == expected
