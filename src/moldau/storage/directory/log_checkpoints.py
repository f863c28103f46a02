"""The checkpoint files of a log directory: the offsets up to which each log is flushed, committed
and deleted.

A checkpoint never claims more than the disk holds, and it is lowered before a log is truncated: an
entry that is too high would look like lost records at the next start.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.storage.directory.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from moldau.storage.directory.clean_stop_manifest import LogInventory
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import CorruptCheckpointError, DiskFullError
from moldau.storage.log.recovery import Checkpointed
from moldau.types import FIRST_OFFSET, Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.storage.log.log import Log


class StoredCheckpoints(NamedTuple):
    """The content of the files at a start."""

    recovery_points: Mapping[TopicPartition, Offset]
    log_starts: Mapping[TopicPartition, Offset]
    high_watermarks: Mapping[TopicPartition, Offset]

    def of(self, partition: TopicPartition, inventory: LogInventory | None) -> Checkpointed:
        return Checkpointed(
            recovery_point=self.recovery_points.get(partition, FIRST_OFFSET),
            log_start_offset=self.log_starts.get(partition, FIRST_OFFSET),
            high_watermark=self.high_watermarks.get(partition, FIRST_OFFSET),
            inventory=inventory,
        )


class LogCheckpoints:
    def __init__(self, directory: LogDirectory, logs: "Mapping[TopicPartition, Log]") -> None:
        """`logs` is a live view of the logs in use."""
        self.promised: dict[TopicPartition, Checkpointed] = {}
        """Entries of logs that opened damaged, or not at all: kept until an operator decides."""
        self._directory = directory
        self._logs = logs
        # The current content of the files.
        self._written: dict[str, dict[TopicPartition, Offset]] = {}

    def read(self) -> StoredCheckpoints:
        return StoredCheckpoints(
            self._read(RECOVERY_POINT_FILE),
            self._read(LOG_START_FILE),
            self._read(HIGH_WATERMARK_FILE),
        )

    def _read(self, file_name: str) -> dict[TopicPartition, Offset]:
        try:
            offsets = self._directory.read_checkpoint(file_name)
        except CorruptCheckpointError:
            # Without the file more is scanned and nothing is assumed.
            return {}
        self._written[file_name] = offsets
        return offsets

    def is_written(self, file_name: str) -> bool:
        """Whether the file has the current values."""
        return file_name in self._written

    def forget_written(self) -> None:
        """Makes the next write replace all files, changed or not."""
        self._written.clear()

    def writing(self, *file_names: str) -> Steps[None]:
        """Writes the files whose values have changed; with names, only those of them."""
        self._directory.check_online()
        for file_name, offsets_of in self._files().items():
            if not file_names or file_name in file_names:
                yield from self._writing(file_name, offsets_of())

    def writing_log_starts(self) -> Steps[None]:
        """Uses the reserved space on a full disk: deletions must succeed there, since they free
        space.
        """
        try:
            yield from self.writing(LOG_START_FILE)
        except DiskFullError:
            if not self._directory.reserve.release():
                raise
            yield from self.writing(LOG_START_FILE)

    def lowering(self, offsets: Mapping[TopicPartition, Offset]) -> Steps[None]:
        """Call before logs are truncated to these offsets."""
        for file_name, offsets_of in self._files().items():
            current = offsets_of()
            for partition, offset in offsets.items():
                if current.get(partition, FIRST_OFFSET) > offset:
                    current[partition] = offset
            yield from self._writing(file_name, current)

    def forgetting(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Drops entries of earlier logs with these names: new logs may not reach their offsets."""
        if any(p in offsets for p in partitions for offsets in self._written.values()):
            yield from self.writing()

    def _writing(self, file_name: str, offsets: dict[TopicPartition, Offset]) -> Steps[None]:
        if self._written.get(file_name) != offsets:
            self._written.pop(file_name, None)
            yield from self._directory.writing_checkpoint(file_name, offsets)
            self._written[file_name] = offsets

    def _files(self) -> dict[str, Callable[[], dict[TopicPartition, Offset]]]:
        return {
            RECOVERY_POINT_FILE: self._recovery_points,
            LOG_START_FILE: self._log_starts,
            HIGH_WATERMARK_FILE: self._high_watermarks,
        }

    def _recovery_points(self) -> dict[TopicPartition, Offset]:
        points = {p: log.recovery_point for p, log in self._logs.items()}
        return points | {p: Offset(c.recovery_point) for p, c in self.promised.items()}

    def _high_watermarks(self) -> dict[TopicPartition, Offset]:
        marks = {p: log.high_watermark for p, log in self._logs.items()}
        return marks | {p: c.high_watermark for p, c in self.promised.items()}

    def _log_starts(self) -> dict[TopicPartition, Offset]:
        """Only those that differ from the base offset of the first segment."""
        starts = {
            p: log.log_start_offset
            for p, log in self._logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        return starts | {p: c.log_start_offset for p, c in self.promised.items()}
