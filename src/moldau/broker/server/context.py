"""The arguments of handlers: the client's peer, its listener's APIs, and the node's services."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from operator import is_not
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from moldau.broker.server.deadlines import WakeUps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.cluster.producer_ids import ProducerIds
    from moldau.broker.cluster.topic_creation import TopicCreation
    from moldau.broker.controller.controller_node import ControllerNode
    from moldau.broker.coordinators.groups import GroupCoordinator
    from moldau.broker.coordinators.transactions import TransactionCoordinator
    from moldau.broker.coordinators.verification import TransactionVerification
    from moldau.broker.metrics.counters import Metrics
    from moldau.broker.quorum.quorum_node import QuorumNode
    from moldau.broker.records.fetch_sessions import FetchSessions
    from moldau.broker.replicas.replicas import Replicas
    from moldau.broker.server.deadlines import Deadlines
    from moldau.broker.server.memory_budget import MemoryBudget
    from moldau.config.broker import BrokerConfig
    from moldau.core.metadata.image import MetadataImage
    from moldau.net.clock import Clock


CachedT = TypeVar("CachedT")
ResultT = TypeVar("ResultT")
ArgumentsP = ParamSpec("ArgumentsP")
_RESULTS_MAX = 100


@dataclass(slots=True, eq=False, repr=False)
class Peer:
    """The other end of a connection."""

    connection_id: int
    listener_name: str
    host: str
    port: int
    is_privileged_listener: bool = False
    """True on the controller's listener and on the inter-broker listener."""
    principal: str = "User:ANONYMOUS"
    client_software_name: str = ""
    client_software_version: str = ""
    client_id: str = ""
    """The client id of the latest request."""
    takes_files: bool = False
    """The connection sends parts of files (`storage/disk/cached_views.py`)."""
    is_answered_later: bool = False
    """The latest request waits for earlier responses."""
    unflushed_bytes: int = 0
    """Bytes appended since the running flush round began (`FlushBacklog`)."""
    flush_place: int = 0
    """The place of its last log in the queue for flush rounds (`GroupFlusher`)."""
    disk_wait_ms: float = 0.0
    """Time spent waiting for flush rounds to begin since the listener's last sweep."""


class ControllerChannel(Protocol):
    """The channel to the active controller, inside the process or over the network."""

    async def send(self, request: Message, version: int | None = None) -> Message:
        """Sends a request of the node itself; in the newest version that both sides know if
        `version` is None. A refusal is a response, too. Raises KafkaError if there is no response.
        """


class ForwardingChannel(ControllerChannel, Protocol):
    """For the requests of clients."""

    async def forward(self, request: Message, version: int | None, peer: Peer) -> Message:
        """Sends a client's request, or one on its behalf if `version` is None. Raises
        MalformedRequestError if the client's connection has to be closed: the controller does not
        serve its version, and it should learn which versions are served.
        """


class ConfigHolder(Protocol):
    """Holds the settings that are in force now, dynamic ones included."""

    @property
    def current(self) -> "BrokerConfig": ...


class ChangeableConfig(ConfigHolder, Protocol):
    """Settings that can change at run time."""

    def check_change(self, resource_name: str, properties: Mapping[str, str]) -> None:
        """Raises KafkaError if these cannot be the run-time settings of all brokers (empty name) or
        of this one.
        """


ImageParts = Callable[["MetadataImage"], tuple[object, ...]]


class ImageCache:
    """Immutable results that handlers have computed from the current image, for the many clients
    that request the same. An image that replaces one of `parts`, compared by identity, clears the
    cache: images share what does not change.
    """

    __slots__ = ("_kept", "_parts", "_results")

    def __init__(self, parts: ImageParts) -> None:
        self._parts = parts
        self._kept: tuple[object, ...] = ()
        self._results: dict[Hashable, Any] = {}

    def of(
        self, image: "MetadataImage", key: Hashable, compute: Callable[["MetadataImage"], CachedT]
    ) -> CachedT:
        parts = self._parts(image)
        if len(parts) != len(self._kept) or any(map(is_not, parts, self._kept)):
            self._kept = parts
            self._results.clear()
        result: CachedT | None = self._results.get(key)
        if result is None:
            result = compute(image)
            if len(self._results) < _RESULTS_MAX:
                self._results[key] = result
        return result


def _whole_image() -> ImageCache:
    return ImageCache(lambda image: (image,))


def _topology() -> ImageCache:
    return ImageCache(lambda image: (image.topics, image.topics_by_id, image.brokers))


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class NodeServices:
    """The parts that every node has, whatever its roles. Created by node/assembly.py; nothing is
    global.
    """

    node_id: BrokerId
    cluster_id: str
    clock: "Clock"
    settings: ChangeableConfig
    metadata: "MetadataFeed"
    metrics: "Metrics"
    budget: "MemoryBudget"
    quorum: "QuorumNode | None" = None
    """The owner of the quorum's own feature, kraft.version."""
    image_cache: ImageCache = field(default_factory=_whole_image)
    topology_cache: ImageCache = field(default_factory=_topology)
    """For results that depend on topics and brokers only. Most records, such as the NoOp of every
    500 ms, change neither.
    """

    @property
    def config(self) -> "BrokerConfig":
        return self.settings.current

    @property
    def image(self) -> "MetadataImage":
        return self.metadata.image


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class BrokerServices(NodeServices):
    """The parts of a node with the broker role, for requests on its clients' listeners."""

    controller: ForwardingChannel
    replicas: "Replicas"
    groups: "GroupCoordinator"
    producer_ids: "ProducerIds"
    transactions: "TransactionCoordinator"
    verification: "TransactionVerification"
    fetch_sessions: "FetchSessions"
    topic_creation: "TopicCreation"
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
    """The versions of each API that the active controller serves, if they are known and may differ
    from those of this node.
    """
    deadlines: "Deadlines"
    """Of requests that wait."""
    workers: "Executor"
    """For requests that would block the event loop; it gets its own copies."""
    wake_ups: WakeUps = field(default_factory=WakeUps)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ControllerServices(NodeServices):
    """The parts of a node with the controller role, for requests on its controller listeners."""

    controller: "ControllerNode"


ServicesT = TypeVar("ServicesT", bound=NodeServices)


@dataclass(slots=True, eq=False, repr=False)
class _Context(Generic[ServicesT]):
    node: ServicesT
    peer: Peer
    api_key: ApiKey
    version: int
    client_id: str
    served_versions: Mapping[ApiKey, tuple[int, int]]
    """The APIs served by the listener of the request."""
    is_large: bool = False
    """The request has thousands of elements, and its views stay valid for as long as they are
    needed.
    """

    async def work(
        self,
        pure: Callable[ArgumentsP, ResultT],
        *args: ArgumentsP.args,
        **kwargs: ArgumentsP.kwargs,
    ) -> ResultT:
        """Calls a function that reads only immutable data: for a large request in a thread."""
        if self.is_large:
            return await asyncio.to_thread(pure, *args, **kwargs)
        return pure(*args, **kwargs)


class RequestContext(_Context[BrokerServices]):
    """A request on a listener for clients."""

    __slots__ = ()

    @property
    def broker(self) -> BrokerServices:
        return self.node


class ControllerContext(_Context[ControllerServices]):
    """A request on a controller listener."""

    __slots__ = ()

    @property
    def controller(self) -> "ControllerNode":
        return self.node.controller


AnyContext: TypeAlias = RequestContext | ControllerContext
"""For handlers that serve both kinds of listeners."""


class Staged:
    """A request that has taken its place (stage one) and waits for the rest of its response. The
    next request of the connection starts meanwhile; responses still leave in order.
    """

    __slots__ = ("answer",)

    def __init__(self, answer: Awaitable[Message]) -> None:
        self.answer = answer


# Views of the request (`records`) are valid until the handler returns or first awaits, no longer. A
# plain function answers at once; a coroutine delays the connection's next request, as in Kafka, at
# most until it returns a `Staged`; None means that no response is sent (Produce with acks=0).
Handler = Callable[[Any, Any], Message | Awaitable[Message | Staged | None] | Staged | None]
