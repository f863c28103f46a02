"""The way into a cluster: connections by node, metadata, leaders and coordinators, and patience for
errors that pass. Everything else in the client asks through here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Self, TypeVar

from moldau.client.errors import ClientError, NoBrokerError, UnknownTopicError, check
from moldau.client.metadata import (
    NO_LEADER,
    Broker,
    ClusterMetadata,
    Topic,
    read_metadata,
)
from moldau.client.node_connection import NodeConnection, VersionRange, spoken
from moldau.client.settings import ClientSettings
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError
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
from moldau.protocol.schema import Message
from moldau.types import TopicPartition

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")

VERSION_MAX = 2**15 - 1
# Several keys in one request; the older form is not spoken here.
_COORDINATOR_BATCH_VERSION = 4
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
        self._connections: dict[tuple[Address, str], NodeConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Lock] = {}
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.channel.close()
        self.clock.close()

    # Asking.

    async def ask(
        self,
        node_id: int | None,
        request: Message,
        answer_class: type[Answer],
        *,
        oldest: int = 0,
        newest: int = VERSION_MAX,
        timeout_ms: float | None = None,
    ) -> Answer:
        """Of one node, or of any if that is None; no patience. `oldest` and `newest` are the
        versions that can carry what the request holds.
        """
        connection = await self.connection(node_id)
        ours = spoken(type(request))
        wanted = VersionRange(max(ours.oldest, oldest), min(ours.newest, newest))
        return await connection.ask(request, answer_class, wanted, timeout_ms=timeout_ms)

    async def connection(self, node_id: int | None, lane: str = "") -> NodeConnection:
        """Answers come in order, so what may wait long takes a lane of its own."""
        if node_id is None:
            return await self._any_connection()
        if node_id not in self._brokers:
            await self.metadata([])
        if node_id not in self._brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not there")
        return await self._connect(self._brokers[node_id].address, lane)

    async def _any_connection(self) -> NodeConnection:
        for (_, lane), connection in self._connections.items():
            if not lane and not connection.channel.is_closed:
                return connection
        problems = []
        # Brokers that were met may outlive the addresses that were given.
        met = [broker.address for broker in self._brokers.values()]
        for address in dict.fromkeys([*self.settings.bootstrap, *met]):
            try:
                return await self._connect(address, "")
            except ChannelError as error:
                problems.append(str(error))
        raise NoBrokerError("; ".join(problems))

    async def _connect(self, address: Address, lane: str) -> NodeConnection:
        place = address, lane
        async with self._opening.setdefault(place, asyncio.Lock()):
            connection = self._connections.get(place)
            if connection is None or connection.channel.is_closed:
                connection = await NodeConnection.open(address, self.clock, self.settings)
                self._connections[place] = connection
            return connection

    async def with_patience(
        self, attempt: Callable[[], Awaitable[Result]], *, patience_ms: float | None = None
    ) -> Result:
        """Runs `attempt` again, with growing pauses, while what it raises may pass."""
        deadline_ms = self.clock.mono_ms() + (
            self.settings.retry_for_ms if patience_ms is None else patience_ms
        )
        pause_ms = self.settings.backoff_ms
        while True:
            try:
                return await attempt()
            except (KafkaError, ChannelError, NoBrokerError) as error:
                is_over = self.clock.mono_ms() + pause_ms >= deadline_ms
                if is_over or not self.may_pass(error):
                    raise
            # What was known led to the error.
            self.forget()
            await self.clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, self.settings.backoff_ms_max)

    def may_pass(self, error: MoldauError) -> bool:
        """A cluster that was never met is at another address; one that was may come back."""
        if isinstance(error, NoBrokerError):
            return bool(self._brokers)
        if isinstance(error, KafkaError):
            return error.code in RETRIABLE
        return isinstance(error, ChannelError)

    # Knowing.

    def forget(self) -> None:
        """Leaders and coordinators are looked up again when they are needed."""
        self._topics.clear()
        self._coordinators.clear()

    async def metadata(
        self, topics: Collection[str] | None, *, create: bool = False
    ) -> ClusterMetadata:
        """Of some topics, or of all if that is None. `create`: a broker that may makes those that
        are missing.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = await self.ask(None, request, MetadataResponse, oldest=4)
        found = read_metadata(answer)
        if found.brokers:
            self._brokers = found.brokers
        if topics is not None:
            self._topics.update(found.topics)
        return found

    async def brokers(self) -> dict[int, Broker]:
        return (await self.metadata([])).brokers

    async def topic(self, name: str) -> Topic:
        """What is known; looked up if nothing is. Raises UnknownTopicError."""
        return (await self.topics([name]))[name]

    async def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        names = list(dict.fromkeys(names))
        unknown = [name for name in names if name not in self._topics]
        if unknown:
            found = await self.with_patience(lambda: self.metadata(unknown))
            if found.missing:
                everything = await self.metadata(None)
                raise UnknownTopicError(min(found.missing), everything.topics)
        return {name: self._topics[name] for name in names}

    async def leader(self, partition: TopicPartition) -> int:
        """Raises LEADER_NOT_AVAILABLE, which may pass."""
        topic = await self.topic(partition.topic)
        leader = topic.partition(partition.partition).leader
        if leader == NO_LEADER:
            self._topics.pop(partition.topic, None)
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
        """Of a group, or of a transactional id."""
        place = kind, key
        if place not in self._coordinators:
            what = f"{_COORDINATED[kind]} '{key}'"
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = await self.ask(
                None, request, FindCoordinatorResponse, oldest=_COORDINATOR_BATCH_VERSION
            )
            for found in answer.coordinators:
                check(found.error_code, f"{what}: {found.error_message or ''}")
                self._coordinators[kind, found.key] = found.node_id
                self._brokers.setdefault(
                    found.node_id, Broker(found.node_id, Address(found.host, found.port), None)
                )
            if place not in self._coordinators:
                raise ClientError(f"no broker names a coordinator for {what}")
        return self._coordinators[place]

    async def ask_coordinator(
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
        return await self.ask(
            node_id,
            request,
            answer_class,
            oldest=oldest,
            newest=newest,
            timeout_ms=timeout_ms,
        )
