"""A node's data path for tests: real log directories, replicas that follow an image, and a clock
that can be moved. No network.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from moldau.broker.cluster.peers import LocalPeers, Peers
from moldau.broker.coordinators.verification import TransactionVerification
from moldau.broker.metrics.counters import Metrics
from moldau.broker.records.fetch_sessions import FetchSessions
from moldau.broker.replicas.partition import Partition
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.server.context import BrokerServices, Peer, RequestContext
from moldau.broker.server.deadlines import Deadlines, WakeUps
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, UNASSIGNED_DIRECTORY, MetadataImage
from moldau.net.clock import ShiftedClock
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.log_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.clean_stop_manifest import MANIFEST_FILE
from moldau.storage.directory.directory import CLEAN_STOP_FILE, LogDirectory, format_directory
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.storage.log.append import AppendResult, VerifiedBatch
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

CLUSTER = "cluster-of-the-tests"
NODE = BrokerId(1)
WORKERS = 2

MINIMAL_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def topic_id(number: int) -> Uuid:
    return Uuid(bytes([7] * 15 + [number]))


def directory_id(number: int) -> Uuid:
    return Uuid(bytes([9] * 15 + [number]))


def batch(
    *values: bytes | None,
    timestamp_ms: int | None = None,
    key: bytes | None = b"key",
    **options: Any,
) -> bytearray:
    """In the form that a producer sends: offsets from 0."""
    time_ms = ShiftedClock().wall_ms() if timestamp_ms is None else timestamp_ms
    records = [Record(i, time_ms, key, value) for i, value in enumerate(values)]
    return bytearray(build_batch(records, BatchOptions(base_offset=0, **options)))


def values_of(records: Any) -> list[bytes | None]:
    return [record.value for each in iterate_batches(records) for record in each.records()]


def open_transaction(partition: Partition, records: bytearray) -> AppendResult:
    """Appends the first batch of a transaction, as if the coordinator had agreed."""
    header = RecordBatch(records)
    verification = partition.begin_verification(
        header.producer_id, header.producer_epoch, header.base_sequence, adds=False
    )
    assert verification is not None
    return partition.append(VerifiedBatch(records, verification))


@dataclass
class ConfigHolder:
    current: BrokerConfig


class DataNode:
    """Use within a running event loop: `await node.stop()` at the end, or `crash`."""

    def __init__(
        self,
        path: Path,
        *,
        directories: int = 1,
        filesystem: FileSystem | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.filesystem = filesystem or DiskFileSystem()
        self.clock = ShiftedClock()
        self.tasks = Tasks()
        self.image: MetadataImage = EMPTY_IMAGE
        self.makes_logs_at_once = True
        self.settings = ConfigHolder(BrokerConfig.parse(MINIMAL_SETTINGS | dict(settings or {})))
        self.sessions = FetchSessions(
            self.settings.current.max_incremental_fetch_session_cache_slots
        )
        self.budget = MemoryBudget(lambda: 1 << 30)
        self.directory_paths = [path / f"logs-{number}" for number in range(directories)]
        for number, each in enumerate(self.directory_paths):
            meta = MetaProperties(
                cluster_id=CLUSTER, node_id=NODE, directory_id=directory_id(number)
            )
            format_directory(self.filesystem, each, meta)

    def open(self) -> None:
        self.directories = [
            LogDirectory.open(self.filesystem, each, cluster_id=CLUSTER, node_id=NODE)
            for each in self.directory_paths
        ]
        self.replicas = Replicas(
            self.directories, node_id=NODE, clock=self.clock, settings=self.settings
        )
        self.deadlines = Deadlines(self.clock)
        self.wake_ups = WakeUps()
        self.workers = ThreadPoolExecutor(WORKERS)
        self.send_to_coordinator(LocalPeers(NODE, self.settings, self.clock))

    def send_to_coordinator(self, peers: Peers) -> None:
        """Transactions are verified with these peers from now on."""
        self.verification = TransactionVerification(
            peers, cast("Any", self), self.settings, self.clock, self.tasks
        )

    async def start(self) -> None:
        self.open()
        await self.replicas.load(self.image)

    async def stop(self) -> None:
        await self.tasks.close()
        self.workers.shutdown(wait=False)
        await self.replicas.stop(broker_epoch=3)
        self.clock.close()

    async def restart(self) -> None:
        await self.stop()
        self.clock = ShiftedClock()
        self.tasks = Tasks()
        await self.start()

    async def crash(self) -> None:
        """Data in the kernel stays, nothing is closed in order."""
        self.workers.shutdown(wait=False)
        await self.replicas.abandon()
        self.clock.close()
        self.clock = ShiftedClock()

    def forget_clean_stop(self) -> None:
        """To the next start the last stop looks like a crash."""
        for path in self.directory_paths:
            for name in (CLEAN_STOP_FILE, MANIFEST_FILE):
                (path / name).unlink()

    def context(
        self, request: Message, version: int | None = None, *, privileged: bool = False
    ) -> RequestContext:
        services = BrokerServices(
            node_id=NODE,
            cluster_id=CLUSTER,
            clock=self.clock,
            settings=cast("Any", self.settings),
            metadata=cast("Any", self),
            controller=cast("Any", None),
            replicas=self.replicas,
            groups=cast("Any", None),
            producer_ids=cast("Any", None),
            transactions=cast("Any", None),
            verification=self.verification,
            fetch_sessions=self.sessions,
            topic_creation=cast("Any", None),
            deadlines=self.deadlines,
            workers=self.workers,
            wake_ups=self.wake_ups,
            metrics=Metrics(),
            budget=self.budget,
        )
        peer = Peer(1, "PLAINTEXT", "127.0.0.1", 5, is_privileged_listener=privileged)
        version = request.VERSIONS[1] if version is None else version
        return RequestContext(services, peer, ApiKey(request.API_KEY), version, "tests", {})

    # Metadata

    def commit(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.finish(Offset(self.image.offset + len(records)), LeaderEpoch(1), 0)
        if hasattr(self, "replicas"):
            self.replicas.apply(delta, self.image)
            if self.makes_logs_at_once:
                self.replicas.catch_up_blocking()

    def create_topic(
        self,
        name: str,
        *,
        number: int = 1,
        partitions: int = 1,
        replicas: tuple[int, ...] = (NODE,),
        directory: Uuid = UNASSIGNED_DIRECTORY,
        configs: Mapping[str, str] | None = None,
    ) -> Uuid:
        records: list[Message] = [TopicRecord(name=name, topic_id=topic_id(number))]
        records += [
            PartitionRecord(
                partition_id=index, topic_id=topic_id(number), replicas=list(replicas),
                isr=list(replicas), leader=replicas[0], leader_epoch=0, partition_epoch=0,
                directories=[directory] * len(replicas),
            )
            for index in range(partitions)
        ]  # fmt: skip
        records += self._configs(name, configs or {})
        self.commit(*records)
        return topic_id(number)

    def delete_topic(self, number: int = 1) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id(number)))

    def configure(self, name: str, **configs: str) -> None:
        """Underscores stand for dots."""
        self.commit(*self._configs(name, {k.replace("_", "."): v for k, v in configs.items()}))

    def switch(self, name: str, *, on: bool | float) -> None:
        """A setting of all brokers, at run time."""
        changes: dict[str, Any] = {name.replace(".", "_"): on}
        self.settings.current = self.settings.current.with_changes(**changes)
        self.commit(
            ConfigRecord(resource_type=ConfigResourceType.BROKER, name=name, value=str(on).lower())
        )

    def change_partition(self, number: int = 1, index: int = 0, **changes: Any) -> None:
        self.commit(PartitionChangeRecord(partition_id=index, topic_id=topic_id(number), **changes))

    @staticmethod
    def _configs(name: str, configs: Mapping[str, str]) -> list[Message]:
        return [
            ConfigRecord(
                resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value
            )
            for key, value in configs.items()
        ]


@contextlib.asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[DataNode]:
    node = DataNode(path, **options)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
