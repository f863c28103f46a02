"""A node's data path for tests: real log directories, replicas that follow an image, and a clock
that can be moved. No network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from moldau.broker.replicas import Replicas
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, UNASSIGNED_DIRECTORY, MetadataImage
from moldau.net.clock import ShiftedClock
from moldau.protocol.batch_builder import BatchOptions, build_batch
from moldau.protocol.batches import Record, iterate_batches
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.log_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.protocol.schema import Message
from moldau.storage.directory import LogDirectory, format_directory
from moldau.storage.filesystem import DiskFileSystem, FileSystem
from moldau.storage.meta_properties import MetaProperties
from moldau.types import BrokerId, Uuid

CLUSTER = "cluster-of-the-tests"
NODE = BrokerId(1)

ResultT = TypeVar("ResultT")


def topic_id(number: int) -> Uuid:
    return Uuid(bytes([7] * 15 + [number]))


def directory_id(number: int) -> Uuid:
    return Uuid(bytes([9] * 15 + [number]))


def batch(*values: bytes | None, timestamp_ms: int | None = None, **options: Any) -> bytearray:
    """As a producer sends it: offsets from 0."""
    time_ms = ShiftedClock().wall_ms() if timestamp_ms is None else timestamp_ms
    records = [Record(i, time_ms, b"key", value) for i, value in enumerate(values)]
    return bytearray(build_batch(records, BatchOptions(base_offset=0, **options)))


def values_of(records: Any) -> list[bytes | None]:
    return [record.value for each in iterate_batches(records) for record in each.records()]


class DataNode:
    """Use within a running event loop: `await node.stop()` at the end, or `crash`."""

    def __init__(
        self,
        path: Path,
        *,
        directories: int = 1,
        filesystem: FileSystem | None = None,
    ) -> None:
        self.path = path
        self.filesystem = filesystem or DiskFileSystem()
        self.clock = ShiftedClock()
        self.image: MetadataImage = EMPTY_IMAGE
        self.settings = cast("Any", SimpleNamespace(current=None))
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

    def start(self) -> None:
        self.open()
        self.replicas.load(self.image)

    async def stop(self) -> None:
        await self.replicas.stop(broker_epoch=3)
        self.clock.close()

    async def restart(self) -> None:
        await self.stop()
        self.clock = ShiftedClock()
        self.start()

    async def crash(self) -> None:
        """What is in the kernel stays, nothing is closed in order."""
        await self.replicas.flush_rounds.stop()
        self.clock.close()
        for logs in self.replicas.store.logs:
            for log in [*logs.by_partition.values(), *logs.futures.values()]:
                log.abandon()
        for directory in self.directories:
            directory.close()

    # Metadata

    def commit(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.finish(self.image.offset + len(records), 1, 0)
        if hasattr(self, "replicas"):
            self.replicas.apply(delta, self.image)

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


def in_loop(scenario: Callable[[DataNode], Awaitable[ResultT]], node: DataNode) -> ResultT:
    """Starts the node, runs the scenario in an event loop, stops the node."""

    async def run() -> ResultT:
        node.start()
        try:
            return await asyncio.wait_for(scenario(node), 30)
        finally:
            await node.stop()

    return asyncio.run(run())
