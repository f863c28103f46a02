"""A thousand topics on one node: created, served, found again after a stop and after a kill, with
few open files.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.running_node import RunningNode
from support.wire_client import WireClient
from system.node.questions import (
    LATEST,
    create_topics,
    create_topics_request,
    offsets_at,
    produce,
    read_all,
    topics_of,
)

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest

TOPICS = 1_000
IN_A_REQUEST = 250
MANY_PARTITIONS = 1_000
NAMES = [f"topic-{number:04d}" for number in range(TOPICS)]
SOME = NAMES[:: TOPICS // 50]
# Segments are opened on use, and closed for others: descriptors need not grow with topics.
OPEN_FILES_MAX = 512
LIMITED = ("sh", "-c", f'ulimit -n {OPEN_FILES_MAX}; exec "$@"', "sh")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("many"), prefix=LIMITED) as made:
        made.start()
        with WireClient(made.address) as client:
            for start in range(0, TOPICS, IN_A_REQUEST):
                wanted = dict.fromkeys(NAMES[start : start + IN_A_REQUEST], 1)
                answers = create_topics(client, wanted)
                assert {code for code, _ in answers.values()} == {0}
        yield made


def check_all(node: RunningNode, records: int) -> None:
    """Every topic exists, and accepts and returns records."""
    with WireClient(node.address) as client:
        assert topics_of(client) == dict.fromkeys(NAMES, 1)
        ends = offsets_at(client, [(name, 0) for name in NAMES], LATEST)
        assert ends == {(name, 0): records if name in SOME else 0 for name in NAMES}
        for name in SOME:
            assert produce(client, name, name.encode()) == (0, records)
            assert read_all(client, name) == [name.encode()] * (records + 1)
    assert node.resources.num_fds() < OPEN_FILES_MAX


def test_all_topics_are_served_and_outlive_a_stop_and_a_kill(node: RunningNode) -> None:
    check_all(node, records=0)
    assert node.stop() == 0
    node.start()
    check_all(node, records=1)
    node.kill()
    node.start()
    check_all(node, records=2)
    assert node.stop() == 0


def test_others_are_served_while_many_partitions_are_made(tmp_path: Path) -> None:
    """And the client that requested them finds them all there."""
    with RunningNode(tmp_path) as node, ExitStack() as stack:
        node.start()
        maker, other = (stack.enter_context(WireClient(node.address)) for _ in range(2))
        request = create_topics_request({"wide": MANY_PARTITIONS})
        maker.send(request)
        answered = 0
        while not maker.has_answer():
            other.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
            answered += 1
        _, answer = maker.receive(ApiKey.CREATE_TOPICS, request.VERSIONS[1])
        assert [each.error_code for each in answer.topics] == [0]
        assert answered > MANY_PARTITIONS / 100
        for index in range(0, MANY_PARTITIONS, 50):
            assert offsets_at(other, [("wide", index)], LATEST) == {("wide", index): 0}
        assert node.stop() == 0
