"""A request with thousands of elements of any kind is answered or refused, and the node keeps
serving.
"""

from collections.abc import Iterator

import pytest
from support.large_requests import Existing, large_requests
from support.running_node import QUICK_SETTINGS, RunningNode
from support.wire_client import HungUpError, WireClient, create_topic

from moldau.protocol.messages.api_versions import ApiVersionsRequest

ELEMENTS = 5_000
"""More than the event loop itself decodes and encodes."""
NAMES = [large.name for large in large_requests(Existing("", bytes(16), ""), 10)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Existing]]:
    folder = tmp_path_factory.mktemp("every-large-request")
    with RunningNode(folder, QUICK_SETTINGS) as node:
        node.start()
        topic_id = create_topic(node.address, "orders", 20)
        yield node.address, Existing("orders", topic_id, "g")
        node.stop()
        assert "Traceback" not in node.errors


def test_every_large_request_is_served_and_others_are_too(node: tuple[str, Existing]) -> None:
    address, existing = node
    served = []
    with WireClient(address) as other:
        for large in large_requests(existing, ELEMENTS):
            with WireClient(address) as client:
                try:
                    client.send(large.message, large.version)
                    client.receive_frame()
                except HungUpError:
                    # Kafka has no response for these either.
                    assert large.name.startswith(("CREATE_ACLS", "DELETE_ACLS")), large.name
            other.ask(ApiVersionsRequest())
            served.append(large.name)
    assert served == NAMES
