"""The shards of one coordinator: one for each partition of its topic that this broker leads. They
are loaded in the background when leadership begins, and unloaded when it ends.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from moldau.broker.coordinators.shard_host import HostServices, HostState, ShardHost
from moldau.core.coordinator.placement import partition_for
from moldau.core.coordinator.playback import Decoder
from moldau.core.coordinator.shard import AnyShard
from moldau.frozen import frozen
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.replicas.partition import Partition
    from moldau.broker.replicas.replicas import Replicas

ShardT = TypeVar("ShardT", bound=AnyShard)


@frozen(kw_only=True)
class ShardKind(Generic[ShardT]):
    topic: str
    partition_count: Callable[[], int]
    """The partition count if the topic does not exist yet."""
    new_shard: Callable[[], ShardT]
    decode: Decoder
    survives_epochs: bool = True
    """True if a shard survives a new leader epoch of its own leader: no other broker has written.
    Otherwise the log is loaded again, because the shard's memory holds less than its log.
    """
    unloaded: Callable[[int], None] | None = None
    """Called when a partition's shard is gone, or is about to be loaded again."""


class CoordinatorRuntime(Generic[ShardT]):
    """Finds the shard of a key or partition, and follows the leadership of the partitions."""

    def __init__(
        self,
        kind: ShardKind[ShardT],
        replicas: "Replicas",
        feed: "MetadataFeed",
        services: HostServices,
    ) -> None:
        self._kind = kind
        self._replicas = replicas
        self._feed = feed
        self._services = services
        self._hosts: dict[int, ShardHost[ShardT]] = {}
        self._tasks = Tasks(are_measured=True)
        self._loading = asyncio.Lock()

    def start(self) -> None:
        """Loads the shards of partitions led now, in the background, and follows later changes."""
        self._replicas.on_leadership(self._leadership_changed)

    async def stop(self) -> None:
        """Called before the replicas stop: waiting clients receive an error and look for another
        coordinator.
        """
        await self._tasks.close()
        for index in list(self._hosts):
            self._unload(index)

    async def wait_loaded(self) -> None:
        """Waits until every shard led now is loaded."""
        for host in list(self._hosts.values()):
            await host.wait_loaded()

    def __iter__(self) -> Iterator[ShardHost[ShardT]]:
        return iter(self._hosts.values())

    def active(self) -> Iterator[ShardHost[ShardT]]:
        return (host for host in self._hosts.values() if host.state is HostState.ACTIVE)

    @property
    def is_loading(self) -> bool:
        return any(host.state is HostState.LOADING for host in self._hosts.values())

    def partition_for(self, key: str) -> int:
        topic = self._feed.image.topic(self._kind.topic)
        count = len(topic.partitions) if topic is not None else 0
        return partition_for(key, count or self._kind.partition_count())

    def of_key(self, key: str) -> ShardHost[ShardT]:
        return self.of_partition(self.partition_for(key))

    def of_partition(self, index: int) -> ShardHost[ShardT]:
        """Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        host = self._hosts.get(index)
        if host is None or host.state in {HostState.FAILED, HostState.CLOSED}:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if host.state is HostState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def _leadership_changed(self, partition: "Partition", leads: bool) -> None:
        topic, index = partition.topic_partition
        if topic != self._kind.topic:
            return
        host = self._hosts.get(index)
        if host is not None:
            continues = leads and host.continues_leadership(partition)
            if continues and self._kind.survives_epochs:
                return
            self._unload(index)
        if leads:
            self._load(partition)

    def _unload(self, index: int) -> None:
        self._hosts.pop(index).unload()
        if self._kind.unloaded is not None:
            self._kind.unloaded(index)

    def _load(self, partition: "Partition") -> None:
        host = ShardHost(self._kind.new_shard(), partition, self._kind.decode, self._services)
        self._hosts[partition.topic_partition.partition] = host
        if partition.has_log and host.is_empty:
            host.activate()
        else:
            _ = self._tasks.start(self._load_in_turn(host), f"load-{partition.topic_partition}")

    async def _load_in_turn(self, host: ShardHost[ShardT]) -> None:
        """Loads one shard at a time: loading all at once would delay each of them until the
        last.
        """
        async with self._loading:
            await host.load()
