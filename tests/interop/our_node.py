"""A log directory with its logs open on our side, as a broker would hold it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.live_broker import CLUSTER_ID, NODE_ID

from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.storage.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from moldau.storage.cleaner import LogCleaner
from moldau.storage.directory import DirectoryKind, LogDirectory, format_directory
from moldau.storage.filesystem import DiskFileSystem
from moldau.storage.log import Log, LogOptions
from moldau.storage.meta_properties import MetaProperties
from moldau.storage.recovery import Checkpointed, LogPlace, open_log
from moldau.types import BrokerId, Offset, TopicPartition, Uuid

NOW_MS = 1_800_000_000_000
DEFAULTS = LogConfig(retention_ms=-1)


class OurNode:
    """Opens, and after a crash recovers, every log of the directory."""

    def __init__(
        self,
        path: Path,
        *,
        configs: Mapping[str, LogConfig] | None = None,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
    ) -> None:
        self.directory = LogDirectory.open(
            DiskFileSystem(), path, cluster_id=cluster_id, node_id=BrokerId(node_id)
        )
        self._configs = dict(configs or {})
        self._cleaner = LogCleaner(self.directory, CleanerConfig(), bytes(16))
        self._logs: dict[TopicPartition, Log] = {}
        found, _ = self.directory.list_partitions()
        for each in found:
            if each.kind is DirectoryKind.PARTITION:
                self._open(each.topic_partition)

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
        self.crash()

    def __getitem__(self, name: TopicPartition) -> Log:
        return self._logs[name]

    def create(self, name: TopicPartition, config: LogConfig) -> Log:
        self._configs[name.topic] = config
        return self._open(name)

    def compact(self, log: Log, now_ms: int) -> None:
        """One whole pass, due or not."""
        self._cleaner.compact(log, now_ms)
        assert self._cleaner.uncleanable == {}

    def stop(self) -> None:
        """A clean stop: the next one to open the directory need not recover it."""
        ends: dict[str, dict[TopicPartition, Offset]] = {
            HIGH_WATERMARK_FILE: {},
            LOG_START_FILE: {},
            RECOVERY_POINT_FILE: {},
        }
        for name, log in self._logs.items():
            assert log.damage is None, log.damage
            log.close()
            ends[HIGH_WATERMARK_FILE][name] = Offset(log.high_watermark)
            ends[RECOVERY_POINT_FILE][name] = Offset(log.flushed_offset)
            ends[LOG_START_FILE][name] = Offset(log.log_start_offset)
        for file_name, offsets in ends.items():
            self.directory.write_checkpoint(file_name, offsets)
        self.directory.mark_clean_stop()
        self.directory.close()
        self._logs = {}

    def crash(self) -> None:
        """Let go of the files without a word, as a killed process does."""
        for log in self._logs.values():
            log.abandon()
        self._logs = {}
        self.directory.close()

    def _open(self, name: TopicPartition) -> Log:
        def known(file_name: str) -> int:
            return self.directory.read_checkpoint(file_name).get(name, Offset(0))

        log = open_log(
            LogPlace(
                directory=self.directory, path=self.directory.path_of(name), topic_partition=name
            ),
            LogOptions(config=self._configs.get(name.topic, DEFAULTS)),
            Checkpointed(
                recovery_point=known(RECOVERY_POINT_FILE),
                log_start_offset=known(LOG_START_FILE),
                high_watermark=known(HIGH_WATERMARK_FILE),
            ),
            is_clean=self.directory.clean_stop_epoch is not None,
            now_ms=NOW_MS,
        )
        self._logs[name] = log
        return log
