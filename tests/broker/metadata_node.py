"""A quorum node with its feed and snapshots over any file system, for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.snapshot_maker import SnapshotMaker
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import NODE_ID, standalone_properties
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.loader import CommittedBatch
from moldau.net.clock import ShiftedClock
from moldau.protocol.log_records import ConfigRecord, TopicRecord
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.types import BrokerId, Uuid

CLUSTER = "MetadataTestCluster00Q"
# No idle records, unless a test enables them.
QUIET = {"metadata.max.idle.interval.ms": "0"}


class RecordingListener(QuorumListener):
    """Remembers the listener calls, in order."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.events: list[str] = []

    def on_snapshot(self, image: MetadataImage) -> None:
        self.events.append(f"snapshot {image.offset}")

    def on_committed(self, batch: CommittedBatch) -> None:
        self.batches.append(batch)
        self.events.append(f"batch {batch.base_offset}-{batch.last_offset}")

    def on_commits_end(self) -> None:
        self.events.append("end")

    def on_leader_change(self, epoch: int, leader_id: int) -> None:
        self.events.append(f"leader {leader_id} epoch {epoch}")


@dataclass
class RunningNode:
    directory: LogDirectory
    quorum: QuorumNode
    feed: MetadataFeed
    snapshots: SnapshotMaker
    clock: ShiftedClock
    listener: RecordingListener
    failures: list[str] = field(default_factory=list)

    async def commit(self, *records: Message) -> int:
        offset = self.quorum.append(records, self.clock.wall_ms())
        await self.quorum.wait_committed(offset)
        return offset

    @property
    def image(self) -> MetadataImage:
        return self.feed.image


def config_for(path: Path, settings: Mapping[str, str] | None = None) -> BrokerConfig:
    """Properties that contain node.id are complete, others extend the defaults."""
    given = settings or {}
    if "process.roles" in given:
        return BrokerConfig.parse({**QUIET, **given})
    properties = standalone_properties(str(path), host="127.0.0.1", port=0)
    if "controller.quorum.voters" in given:
        del properties["controller.quorum.bootstrap.servers"]
    return BrokerConfig.parse({**properties, **QUIET, **given})


def formatted(path: Path, filesystem: FileSystem | None = None) -> Path:
    options = FormatOptions(cluster_id=CLUSTER, standalone=True)
    format_node(filesystem or DiskFileSystem(), config_for(path), options, 1_000)
    return path


@asynccontextmanager
async def running(
    path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    filesystem: FileSystem | None = None,
    cluster_id: str = CLUSTER,
) -> AsyncIterator[RunningNode]:
    """Starts on a formatted directory, stops cleanly."""
    disk = filesystem or DiskFileSystem()
    config = config_for(path, settings)
    directory = LogDirectory.open(disk, path, cluster_id=cluster_id, node_id=BrokerId(NODE_ID))
    clock = ShiftedClock()
    try:
        failures: list[str] = []
        quorum = QuorumNode(directory, config, clock, failures.append)
        feed = MetadataFeed()
        snapshots = SnapshotMaker(quorum, config, clock)
        listener = RecordingListener()
        quorum.add_listener(listener)
        quorum.add_listener(feed)
        feed.subscribe(snapshots.image_changed)
        node = RunningNode(directory, quorum, feed, snapshots, clock, listener, failures)
        try:
            await quorum.start()
            await quorum.wait_for_leader()
            yield node
        finally:
            await snapshots.stop()
            await quorum.stop()
    finally:
        clock.close()
        directory.close()


async def bootstrapped(node: RunningNode) -> None:
    """Begins as a controller does: with the records that formatting left."""
    await node.commit(*node.quorum.bootstrap_records())


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-")[:16]))


def config(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value)
