"""A log directory with its open logs on our side, as a broker would hold it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.live_broker import CLUSTER_ID, NODE_ID
from storage.samples import expected_topics

from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.logs import Logs
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.types import BrokerId, TopicPartition, Uuid

NOW_MS = 1_800_000_000_000
DEFAULTS = LogConfig(retention_ms=-1)


class OurNode:
    """Opens every log of the directory, with a recovery after a crash."""

    def __init__(
        self,
        path: Path,
        *,
        configs: Mapping[str, LogConfig] | None = None,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
        now_ms: int = NOW_MS,
    ) -> None:
        self.directory = LogDirectory.open(
            DiskFileSystem(), path, cluster_id=cluster_id, node_id=BrokerId(node_id)
        )
        self._configs = dict(configs or {})
        self._cleaner = LogCleaner(self.directory, CleanerConfig(), bytes(16))
        self._logs = Logs(self.directory, self._options)
        self._logs.load(now_ms)
        assert self._logs.unreadable == {}
        self._is_open = True

    @classmethod
    def formatted(cls, path: Path) -> "OurNode":
        """A new, empty directory."""
        meta = MetaProperties(
            cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID), directory_id=Uuid(bytes(range(16)))
        )
        format_directory(DiskFileSystem(), path, meta)
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self.crash()

    def __getitem__(self, name: TopicPartition) -> Log:
        return self._logs.by_partition[name]

    def create(self, name: TopicPartition, config: LogConfig) -> Log:
        self._configs[name.topic] = config
        return self._logs.create(name, Uuid(b"\x01" * 16), NOW_MS)

    def compact(self, log: Log, now_ms: int) -> int:
        """Runs one whole pass, due or not. Returns the first offset that is still dirty."""
        compaction = self._cleaner.compact(log, now_ms)
        assert self._cleaner.uncleanable == {}
        return compaction.end_offset

    def stop(self) -> None:
        """A clean stop: the next start needs no recovery."""
        for log in self._logs.by_partition.values():
            assert log.damage is None, log.damage
        self._logs.stop()
        self._is_open = False

    def crash(self) -> None:
        """Close the files without writing anything, like a killed process."""
        for log in self._logs.by_partition.values():
            log.abandon()
        self.directory.close()
        self._is_open = False

    def _options(self, name: TopicPartition) -> LogOptions:
        return LogOptions(config=self._configs.get(name.topic, DEFAULTS))


def sample_configs() -> dict[str, LogConfig]:
    """The settings of the samples' topics that affect the files; nothing expires."""
    return {name: _config(topic.configs) for name, topic in expected_topics().items()}


def _config(settings: dict[str, str]) -> LogConfig:
    return LogConfig(
        cleanup_policy=tuple(settings.get("cleanup.policy", "delete").split(",")),
        message_timestamp_type=settings.get("message.timestamp.type", "CreateTime"),
        segment_bytes=int(settings.get("segment.bytes", 1 << 30)),
        retention_ms=-1,
    )
