"""Access to a cluster: metadata, leaders, coordinators, and retries of retriable errors. All
requests of a client are sent through here.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Self, TypeVar

from moldau.client.cluster.connections import Connections, chance
from moldau.client.cluster.known_cluster import KnownCluster
from moldau.client.cluster.metadata import Broker, ClusterMetadata, Topic, read_metadata
from moldau.client.cluster.node_connection import NodeConnection, VersionRange, supported_versions
from moldau.client.cluster.settings import ClientSettings
from moldau.client.errors import (
    ClientError,
    ClientTimeoutError,
    NoBrokerError,
    UnknownTopicError,
    check,
)
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError
from moldau.net.tasks import Tasks
from moldau.protocol.enums import CoordinatorType
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from moldau.protocol.versions import FIND_COORDINATOR_BATCHES
from moldau.protocol.wire.schema import Message
from moldau.types import INT16_MAX, NO_LEADER, TopicPartition

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")

VERSION_MAX = INT16_MAX
# The first version that says whether a missing topic may be created (Kafka 0.11).
_CREATION_VERSION = 4
# The first version with other coordinators than those of groups.
_COORDINATOR_KIND_VERSION = 1
_COORDINATED = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
    CoordinatorType.SHARE: "share partition",
}


class Cluster:
    """Use as `async with`. One event loop owns it."""

    def __init__(self, settings: ClientSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        self.tasks = Tasks()
        self.known = KnownCluster()
        self._connections = Connections(settings, self.clock, self.tasks)
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._unreached: set[int] = set()
        self._was_reached = False
        self._unanswered_since_ms: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.tasks.close()
        await self._connections.close()
        self.clock.close()

    # Requests.

    async def send(
        self,
        node_id: int | None,
        request: Message,
        answer_class: type[Answer],
        *,
        oldest: int = 0,
        newest: int = VERSION_MAX,
        timeout_ms: float | None = None,
    ) -> Answer:
        """Sends a request without retries to one node, or to any node if `node_id` is None.
        `oldest` and `newest` are the versions that can carry the request.
        """
        connection = await self.connection(node_id)
        ours = supported_versions(type(request))
        wanted = VersionRange(max(ours.oldest, oldest), min(ours.newest, newest))
        return await connection.send(request, answer_class, wanted, timeout_ms=timeout_ms)

    async def connection(self, node_id: int | None, lane: str = "") -> NodeConnection:
        """A connection to a node, or to any node if `node_id` is None. Responses come in order, so
        requests that may wait long use a lane of their own.
        """
        if node_id is None:
            return self._connections.least_busy() or await self._first_connection()
        if node_id not in self.known.brokers or node_id in self._unreached:
            # It may have restarted at another address.
            await self.metadata([])
        if node_id not in self.known.brokers:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster"
            )
        try:
            found = await self._connections.to(self.known.brokers[node_id].address, lane)
        except ChannelError:
            self._unreached.add(node_id)
            raise
        self._unreached.discard(node_id)
        return found

    async def controller(self) -> int | None:
        """The broker to send requests for the controller to. None: any, as brokers forward them
        since 2.8.
        """
        if self.known.controller_id not in self.known.brokers:
            await self.metadata([])
        found = self.known.controller_id
        return found if found in self.known.brokers else None

    async def send_to_controller(
        self, request: Message, answer_class: type[Answer], *, oldest: int = 0
    ) -> Answer:
        return await self.send(await self.controller(), request, answer_class, oldest=oldest)

    async def _first_connection(self) -> NodeConnection:
        """Connects to a known broker, or to the bootstrap servers if none can be reached."""
        problems: list[str] = []
        known = [broker.address for broker in self.known.brokers.values()]
        if known:
            if (found := await self._first_of(known, problems)) is not None:
                return found
            if self.settings.rebootstraps:
                self.rebootstrap("no known broker can be reached")
        bootstrap = self.settings.bootstrap if self.settings.rebootstraps or not known else ()
        if (found := await self._first_of(bootstrap, problems)) is not None:
            return found
        raise NoBrokerError("; ".join(dict.fromkeys(problems)))

    async def _first_of(
        self, addresses: Iterable[Address], problems: list[str]
    ) -> NodeConnection | None:
        for address in self._connections.in_connect_order(addresses):
            try:
                found = await self._connections.to(address)
            except ChannelError as error:
                problems.append(str(error))
                continue
            self._was_reached = True
            return found
        return None

    def rebootstrap(self, reason: str) -> None:
        """Forgets the cluster and begins again with the bootstrap servers (KIP-899, KIP-1102)."""
        _log.info("rebootstrapping: %s", reason)
        self.known.forget_all()
        self._coordinators.clear()
        self._unreached.clear()
        self._unanswered_since_ms = None
        self._connections.drop_all(reason)

    async def with_retries(
        self, attempt: Callable[[], Awaitable[Result]], *, patience_ms: float | None = None
    ) -> Result:
        """Retries `attempt` with growing pauses while its errors are retriable. After `patience_ms`
        it raises the last error, or ClientTimeoutError if there was none.
        """
        patience_ms = self.settings.retry_for_ms if patience_ms is None else patience_ms
        deadline_ms = self.clock.mono_ms() + patience_ms
        failures = 0
        last: MoldauError | None = None
        while True:
            try:
                async with self.clock.timeout(deadline_ms - self.clock.mono_ms()):
                    return await attempt()
            except (KafkaError, ChannelError, NoBrokerError) as error:
                last = error
                failures += 1
                pause_ms = self.pause_ms(failures)
                is_over = self.clock.mono_ms() + pause_ms >= deadline_ms
                if is_over or failures > self.settings.retries_max or not self.is_retriable(error):
                    raise
            except TimeoutError as error:
                if isinstance(error, MoldauError):
                    raise
                raise last or ClientTimeoutError(
                    f"no answer within {round(patience_ms)} ms"
                ) from None
            # The error may come from stale metadata.
            self.forget()
            await self.clock.sleep(pause_ms)

    def pause_ms(self, failures: int) -> float:
        """The pause before a retry, after so many failures in a row."""
        return self.settings.retry.pause_ms(failures, chance())

    def is_retriable(self, error: MoldauError) -> bool:
        """Whether a retry may help. If the cluster was never reached, its bootstrap servers are
        most likely wrong addresses, so that error is not retriable.
        """
        if isinstance(error, NoBrokerError):
            return self._was_reached
        if isinstance(error, KafkaError):
            return error.code in RETRIABLE
        return isinstance(error, ChannelError | ClientTimeoutError)

    # Metadata.

    def forget(self) -> None:
        """Marks leaders and coordinators as stale: they are looked up again when next needed."""
        self.known.mark_stale()
        self.known.controller_id = NO_LEADER
        self._coordinators.clear()

    def forget_coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    async def metadata(
        self, topics: Collection[str] | None, *, create: bool = False, is_lenient: bool = False
    ) -> ClusterMetadata:
        """Requests the metadata of some topics, or of all topics if `topics` is None. `create`:
        brokers may create missing topics. `is_lenient`: the error of a topic is in the result, not
        raised.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        try:
            answer = await self.send(None, request, MetadataResponse, oldest=_CREATION_VERSION)
        except (ChannelError, NoBrokerError):
            self._note_no_answer()
            raise
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self.settings.rebootstraps:
            self.rebootstrap("a broker requires it")
            answer = await self.send(None, request, MetadataResponse, oldest=_CREATION_VERSION)
        found = read_metadata(answer)
        self._unanswered_since_ms = None
        self._was_reached = True
        self.known.update(found)
        self._connections.keep_only(
            {broker.address for broker in self.known.brokers.values()}
            | set(self.settings.bootstrap)
        )
        if found.failures and not is_lenient:
            raise next(iter(found.failures.values()))
        return found

    def _note_no_answer(self) -> None:
        now_ms = self.clock.mono_ms()
        since_ms = self._unanswered_since_ms
        if since_ms is None:
            self._unanswered_since_ms = now_ms
        elif self.settings.rebootstraps and now_ms - since_ms >= self.settings.rebootstrap_after_ms:
            self.rebootstrap("metadata requests were not answered for too long")

    async def brokers(self) -> dict[int, Broker]:
        return (await self.metadata([])).brokers

    async def topic(self, name: str) -> Topic:
        """The known metadata of a topic; requested if there is none. Raises UnknownTopicError."""
        return (await self.topics([name]))[name]

    async def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        names = list(dict.fromkeys(names))
        unknown = [name for name in names if not self.known.is_fresh(name)]
        if unknown:
            found = await self.with_retries(lambda: self.metadata(unknown))
            if found.missing:
                everything = await self.metadata(None)
                raise UnknownTopicError(min(found.missing), everything.topics)
        return {name: self.known.topics[name] for name in names}

    async def leader(self, partition: TopicPartition) -> int:
        """The leader's id. Raises LEADER_NOT_AVAILABLE, which is retriable, if there is none."""
        topic = await self.topic(partition.topic)
        leader = topic.partition(partition.partition).leader
        if leader == NO_LEADER:
            self.known.mark_stale(partition.topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return leader

    async def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        partitions = list(partitions)
        await self.topics(partition.topic for partition in partitions)
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(await self.leader(partition), []).append(partition)
        return found

    async def coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> int:
        """The coordinator of a group or of a transactional id."""
        if (kind, key) not in self._coordinators:
            broker = await self._find_coordinator(key, kind)
            self._coordinators[kind, key] = broker.node_id
            self.known.update_address(broker)
        return self._coordinators[kind, key]

    async def _find_coordinator(self, key: str, kind: CoordinatorType) -> Broker:
        what = f"{_COORDINATED[kind]} '{key}'"
        connection = await self.connection(None)
        if connection.newest_of(FindCoordinatorRequest) >= FIND_COORDINATOR_BATCHES:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = await connection.send(request, FindCoordinatorResponse)
            for row in answer.coordinators:
                check(row.error_code, f"{what}: {row.error_message or ''}")
                if row.key == key:
                    return Broker(row.node_id, Address(row.host, row.port), None)
            raise ClientError(f"the broker returned no coordinator for {what}")
        oldest = 0 if kind is CoordinatorType.GROUP else _COORDINATOR_KIND_VERSION
        answer = await connection.send(
            FindCoordinatorRequest(key=key, key_type=kind),
            FindCoordinatorResponse,
            VersionRange(oldest, FIND_COORDINATOR_BATCHES - 1),
        )
        check(answer.error_code, f"{what}: {answer.error_message or ''}")
        return Broker(answer.node_id, Address(answer.host, answer.port), None)

    async def send_to_coordinator(
        self,
        group_id: str,
        request: Message,
        answer_class: type[Answer],
        *,
        oldest: int = 0,
        newest: int = VERSION_MAX,
        timeout_ms: float | None = None,
    ) -> Answer:
        node_id = await self.coordinator(group_id)
        return await self.send(
            node_id,
            request,
            answer_class,
            oldest=oldest,
            newest=newest,
            timeout_ms=timeout_ms,
        )
