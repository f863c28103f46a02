"""Each conversation of transactional producers proceeds as written: with Apache Kafka first, then
with Moldau.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.producer_talk import CONVERSATIONS, talk, wait_for_coordinator

pytestmark = pytest.mark.interop

SETTINGS = {"transaction.state.log.num.partitions": "4"}


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
        wait_for_coordinator(live.address)
        yield live


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_proceeds_as_written(node: LiveNode, path: Path) -> None:
    expected, heard = talk(node.address, path)
    assert heard == expected
