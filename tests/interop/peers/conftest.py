"""One server under test per run; tests use separate topics and groups."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.live_broker import LiveNode
from interop.missing import CACHE, give_up
from interop.peers.java_tools import JavaTools
from interop.peers.later import reason_to_wait
from interop.peers.servers import APACHE, MOLDAU, Server, new_node, requested
from interop.peers.toolchains import Spark, spark

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running node of the kind under test."""
    with _running(apache, tmp_path_factory.mktemp("server"), {}) as running:
        yield running


@pytest.fixture(scope="module")
def patient_server(
    apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Its new groups wait for further members as long as Kafka's do by default."""
    settings = {"group.initial.rebalance.delay.ms": "3000"}
    with _running(apache, tmp_path_factory.mktemp("patient"), settings) as running:
        yield running


@contextmanager
def _running(apache: ApacheOracle, folder: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    if requested() not in {APACHE, MOLDAU}:
        yield Server(requested(), APACHE)
        return
    with new_node(apache, folder, settings) as node:
        node.format()
        node.start()
        yield Server(node.address, requested(), node)


@pytest.fixture
def start_node(apache: ApacheOracle, tmp_path: Path) -> Iterator[Callable[[], LiveNode]]:
    """Creates running nodes that the test may stop; all end after it."""
    with ExitStack() as nodes:

        def start() -> LiveNode:
            node = nodes.enter_context(new_node(apache, tmp_path / f"node-{next(_numbers)}"))
            node.format()
            node.start()
            return node

        yield start


@pytest.fixture(scope="session")
def connector() -> Spark:
    """Spark with its own connector."""
    try:
        return spark(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "Spark's connector needs a JDK, Maven and PySpark")


@pytest.fixture(scope="session")
def tools(apache: ApacheOracle, server: Server) -> JavaTools:
    return JavaTools(apache, server)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or a group that no other test uses."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:80]
    return f"{test}-{next(_numbers)}"


@pytest.fixture(autouse=True)
def waits_for_later(request: pytest.FixtureRequest) -> None:
    """Skips tests, by name, that need features that Moldau does not serve yet."""
    reason = reason_to_wait("here", request.node.originalname)
    if reason is not None and requested() == MOLDAU:
        pytest.skip(f"needs {reason}")
