"""Each conversation about offsets in transactions, and about the markers that end them, goes as it
is written: with Apache Kafka first, then with Moldau.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.group_talk import talk
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from interop.producer_talk import OFFSETS_PARTITIONS, ProducerTalk
from running_node import wait_for

pytestmark = pytest.mark.interop

CONVERSATIONS = sorted((Path(__file__).parent / "producer_conversations").glob("*.txt"))
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offset.metadata.max.bytes": "8",
    "transaction.state.log.num.partitions": "4",
}


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
        wait_for(lambda: _coordinates(live.address), "the coordinators")
        yield live


def _coordinates(address: str) -> bool:
    """Asked for a coordinator, a new cluster first makes the topic that it needs."""
    conversation = ProducerTalk(address)
    try:
        conversation.run("z finds")
        conversation.run("z finds type=1")
        return conversation.lines == ["z finds: NONE a broker"] * 2
    finally:
        conversation.wire.close()


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(node: LiveNode, path: Path) -> None:
    expected, heard = talk(node.address, path, ProducerTalk)
    assert heard == expected
