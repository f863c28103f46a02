"""The shards of one coordinator: one for each partition of its topic that is led here. They are
loaded in the background when a leadership begins, and unloaded when it ends.
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
    """Of a topic that is still to be made."""
    new_shard: Callable[[], ShardT]
    decode: Decoder
    survives_epochs: bool = True
    """A leadership that follows on our own takes over what is in memory: nobody else has written.
    Otherwise the log is loaded again: what is under way in memory is less than what is in the log.
    """
    unloaded: Callable[[int], None] | None = None
    """Told of a partition whose shard is gone, or about to be loaded again."""


class ShardHosts(Generic[ShardT]):
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
        self._tasks = Tasks()
        self._loading = asyncio.Lock()

    def start(self) -> None:
        """Loads what is led here now, in the background, and follows what comes."""
        self._replicas.on_leadership(self._leadership_changed)

    async def stop(self) -> None:
        """Before the replicas stop: whoever waits is told to look elsewhere."""
        await self._tasks.close()
        for index in list(self._hosts):
            self._unload(index)

    async def wait_loaded(self) -> None:
        """Until everything that is led here now can be asked."""
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
            goes_on = leads and host.goes_on_leading(partition)
            if goes_on and self._kind.survives_epochs:
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
        """One after the other: all at once would keep everybody else waiting for all of them."""
        async with self._loading:
            await host.load()
