"""One node receives all the bad input; after each row it must serve, hold no more memory than
before, and have logged little about it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import KafkaUnderTest, kafka_under_test
from support.waiting import wait_for
from support.wire_client import WireClient

from moldau.protocol.messages.api_versions import ApiVersionsRequest

RSS_GROWTH_MAX = 64 << 20
LOG_LINES_MAX = 1


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaUnderTest]:
    with kafka_under_test(tmp_path_factory.mktemp("victim")) as running:
        with WireClient(running.address) as first:
            first.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        yield running


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    if "victim" not in request.fixturenames:
        yield
        return
    victim: KafkaUnderTest = request.getfixturevalue("victim")
    if victim.node is None:
        yield
        _answers(victim.address)
        return
    process = victim.node.resources
    descriptors, memory = process.num_fds(), process.memory_info().rss
    lines = victim.node.errors.count("\n")
    yield
    _answers(victim.address)
    assert process.memory_info().rss - memory < RSS_GROWTH_MAX
    # Segments may have been opened meanwhile; connections must be closed.
    wait_for(lambda: process.num_fds() <= descriptors + 16, "descriptors to be closed")
    complaints = victim.node.errors.split("\n")[lines:-1]
    unusual = [line for line in complaints if not _is_expected(line)]
    if "fuzz" not in request.node.nodeid:
        assert len(unusual) <= LOG_LINES_MAX, unusual
    assert "Traceback" not in "\n".join(complaints)


def _is_expected(line: str) -> bool:
    """Besides ordinary lines: the count of lines left out comes once a second with the next,
    and a busy machine can stop the node for longer than a request may hold the event loop.
    """
    is_ordinary = " INFO " in line
    return (
        is_ordinary or line.endswith("more such lines were left out") or "blocked all other" in line
    )


def _answers(address: str) -> None:
    with WireClient(address) as healthy:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert healthy.ask(request, 3).error_code == 0


@pytest.fixture
def client(victim: KafkaUnderTest) -> Iterator[WireClient]:
    with WireClient(victim.address) as connected:
        yield connected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
