"""Each conversation of a group with its coordinator proceeds as written: with Apache Kafka first,
then with Moldau.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.group_talk import Conversation, talk
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for

from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

pytestmark = pytest.mark.interop

CONVERSATIONS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))
SETTINGS = {"group.min.session.timeout.ms": "100", "offsets.topic.num.partitions": "4"}


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
        wait_for(lambda: _coordinates(live.address), "the coordinator")
        yield live


def _coordinates(address: str) -> bool:
    """When asked for a coordinator, a new cluster first creates the internal topic of groups."""
    conversation = Conversation(address)
    try:
        conversation.run("z finds")
        if conversation.wire.waits("z"):
            conversation.hear(["z"])
        if conversation.lines != ["z finds: NONE a broker"]:
            return False
        groups = [OffsetFetchRequestGroup(group_id=f"warm-up-{n}", topics=None) for n in range(40)]
        answer = conversation.wire.connection("z").ask(OffsetFetchRequest(groups=groups), 9)
        return all(group.error_code == 0 for group in answer.groups)
    finally:
        conversation.wire.close()


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_the_conversation_proceeds_as_written(node: LiveNode, path: Path) -> None:
    expected, heard = talk(node.address, path)
    assert heard == expected
