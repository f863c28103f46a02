"""A live Apache Kafka and a Moldau with the same settings receive the same requests: code and text
of every response must be equal.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient, has_leaders

from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.wire.schema import Message, Struct
from moldau.types import ZERO_UUID

# Different in every run, or dependent on a clock.
UNCOMPARED = {
    "port",
    "throttle_time_ms",
    "high_watermark",
    "log_end_offset",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
}
# Apache takes 0 literally and does nothing.
TIMEOUT_MS = 30_000
HUNG_UP = "hung up"


class Asker:
    """A client of one node's listener, whose connection is reopened when the node has closed it."""

    def __init__(self, node: LiveNode, address: str) -> None:
        self.node = node
        self._address = address
        self._client: WireClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hang_up()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The response, or HUNG_UP."""
        if self._client is None:
            self._client = WireClient(self._address)
        try:
            return self._client.ask(request, version)
        except HungUpError:
            self._hang_up()
            return HUNG_UP

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Pair(NamedTuple):
    apache: Asker
    ours: Asker

    def same(self, request: Message, *versions: int) -> Any:
        """Send to both, in every version unless versions are passed. Returns our last response."""
        first, last = request.VERSIONS
        ours = None
        for version in versions or range(first, last + 1):
            theirs = plain(self.apache.ask(request, version))
            ours = self.ours.ask(request, version)
            differing = f"version {version}: Apache: {theirs}, ours: {plain(ours)}"
            assert plain(ours) == theirs, differing
        return ours

    def create(self, *topics: CreatableTopic) -> None:
        """Create topics that a test needs, if they are missing. Apache's broker learns of them
        late.
        """
        for side in self:
            side.ask(CreateTopicsRequest(topics=list(topics)))
            for each in topics:
                wait_for(partial(has_leaders, side, each.name, each.num_partitions), each.name)

    def delete(self, name: str) -> None:
        asked = [DeleteTopicState(name=name)]
        for side in self:
            side.ask(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS, topics=asked))
            wait_for(partial(_is_gone, side, name), f"the end of {name}")


class Pairs(NamedTuple):
    brokers: Pair
    controllers: Pair


def _is_gone(side: Asker, name: str) -> bool:
    return all(topic.name != name for topic in side.ask(MetadataRequest(topics=None)).topics)


def plain(value: Any) -> Any:
    """A message as plain comparable values: no ids, no order of named elements."""
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if any(isinstance(i, dict) for i in items) else items
    if isinstance(value, Struct):
        fields = {row[0]: plain(getattr(value, row[0])) for row in value.FIELDS}
        return {name: None if name in UNCOMPARED else each for name, each in fields.items()}
    if isinstance(value, bytes):
        return "no id" if value == ZERO_UUID else "an id"
    return value


@contextmanager
def running_pairs(
    apache: ApacheOracle,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    static_voters: bool = False,
) -> Iterator[Pairs]:
    """Two new nodes, each a cluster of its own, with the same settings except for their ports."""
    makers: dict[str, Callable[[Path], LiveNode]] = {
        "apache": lambda path: LiveBroker(apache, path, settings),
        "moldau": lambda path: LiveMoldau(path, settings),
    }
    with ExitStack() as stack:
        nodes = []
        for name, make in makers.items():
            path = folder / name
            path.mkdir()
            node = stack.enter_context(make(path))
            if static_voters:
                node.name_voters_in_settings()
            node.format()
            node.start()
            nodes.append(node)
        yield Pairs(
            Pair(*[stack.enter_context(Asker(node, node.address)) for node in nodes]),
            Pair(*[stack.enter_context(Asker(node, node.controller_address)) for node in nodes]),
        )
