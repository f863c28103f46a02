"""A thousand topics on one node: made, served, found again after a stop and after a kill, with few
open files.
"""

from collections.abc import Iterator

import pytest
from node.questions import LATEST, create_topics, offsets_at, produce, read_all, topics_of
from running_node import RunningNode
from wire_client import WireClient

TOPICS = 1_000
IN_A_REQUEST = 250
NAMES = [f"topic-{number:04d}" for number in range(TOPICS)]
SOME = NAMES[:: TOPICS // 50]
# Segments are opened when used, and give way to others: descriptors need not grow with topics.
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
    """Everything is there, and takes and gives records."""
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
