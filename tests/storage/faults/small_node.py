"""One log in one log directory, as a node holds it: for the suites that try to break storage. Works
on a simulated disk or a real one; `release` ends it like a killed process.
"""

from dataclasses import dataclass
from pathlib import Path

from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.logs import Logs
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log, LogOptions
from moldau.types import BrokerId, TopicPartition, Uuid

ROOT = Path("/disk/data")
NAME = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))
CLUSTER_ID = "cluster-of-the-fault-suites"
NODE_ID = BrokerId(1)
META = MetaProperties(
    cluster_id=CLUSTER_ID, node_id=NODE_ID, directory_id=Uuid(bytes(range(16, 32)))
)
HASH_KEY = bytes(range(16))
START_MS = 1_700_000_000_000


def small_log(**settings: object) -> LogConfig:
    """Segments of a few batches with many index entries."""
    chosen: dict[str, object] = {
        "internal_segment_bytes": 900,
        "index_interval_bytes": 100,
        "file_delete_delay_ms": 2_000,
        "min_cleanable_dirty_ratio": 0.0,
        "retention_ms": -1,
        **settings,
    }
    return LogConfig(**chosen)  # type: ignore[arg-type]


SMALL_LOG = small_log()


@dataclass(frozen=True)
class Setup:
    policy: str = "group"
    config: LogConfig = SMALL_LOG
    root: Path = ROOT


class Node:
    def __init__(self, filesystem: FileSystem, setup: Setup, now_ms: int = START_MS) -> None:
        """Opens the directory and its logs; runs a recovery unless the last stop was clean."""
        self.filesystem = filesystem
        self.setup = setup
        self.flusher = GroupFlusher()
        self.directory = LogDirectory.open(
            filesystem, setup.root, cluster_id=CLUSTER_ID, node_id=NODE_ID
        )
        try:
            self.logs = Logs(self.directory, self._options)
            self.logs.load(now_ms)
            self.cleaner = LogCleaner(self.directory, CleanerConfig(), HASH_KEY)
        except BaseException:
            self.directory.close()
            raise

    @classmethod
    def new(cls, filesystem: FileSystem, setup: Setup, now_ms: int = START_MS) -> "Node":
        """A formatted directory with an empty log."""
        filesystem.make_directory(setup.root.parent)
        filesystem.sync_directory(setup.root.parent.parent)
        format_directory(filesystem, setup.root, META)
        node = cls(filesystem, setup, now_ms)
        node.logs.create(NAME, TOPIC_ID, now_ms)
        run_here(node.logs.syncing_names())
        run_here(node.logs.checkpoints.writing())
        return node

    def _options(self, _partition: TopicPartition) -> LogOptions:
        return LogOptions(
            config=self.setup.config,
            flush_policy=self.setup.policy,
            flusher=self.flusher,
            syncs_later=self.setup.policy != "strict",
        )

    @property
    def log(self) -> Log:
        return self.logs.by_partition[NAME]

    def flush(self) -> None:
        """Flushes as the policy does."""
        if self.setup.policy == "group":
            # After a roll, a second round gives the new segment its name.
            for _ in range(2):
                self.flusher.run_round()
        else:
            self.log.flush()

    def commit(self) -> None:
        """As the only replica: everything that may be counted is committed."""
        self.log.raise_high_watermark(self.log.countable_end_offset)

    def stop(self) -> None:
        self.logs.stop()

    def release(self) -> None:
        """Frees handles and the lock like the end of the process, without writing anything."""
        for log in self.logs.by_partition.values():
            log.abandon()
        self.directory.close()
