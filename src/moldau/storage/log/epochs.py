"""The start offset of each leader epoch. Epochs and offsets both rise strictly.

Changes are made in memory. The file is written by the flush that makes an epoch's first records
durable, or later if there is no room: no recovery point passes `unwritten_from`, and beyond it a
recovery finds the epochs in the batches. Entries that a truncation made obsolete are removed from
the file when the log is opened.
"""

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from moldau.storage.directory.checkpoints import parse_number, read_lines, write_lines
from moldau.storage.disk.failures import CorruptCheckpointError, DiskFullError, excerpt
from moldau.storage.disk.filesystem import FileSystem
from moldau.types import INT32_MAX, NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

EPOCH_FILE = "leader-epoch-checkpoint"

_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochCache:
    def __init__(
        self, filesystem: FileSystem, path: Path, *, entries: Iterable[EpochStart] | None = None
    ) -> None:
        """Reads the file, or takes `entries` instead (rebuilt from the log). A broken file raises
        CorruptCheckpointError."""
        self.path = path
        self._filesystem = filesystem
        # The log flushes in one thread and truncates in another.
        self._writing = threading.Lock()
        self._dirty = entries is not None
        self._entries: list[EpochStart] = []
        self._written: list[EpochStart] | None = None
        """The content of the file, if known; during a write, its content before."""
        if entries is None:
            self._entries = _read(filesystem, path)
            self._written = list(self._entries)
        else:
            for entry in entries:
                self._assign(entry)

    @property
    def entries(self) -> list[EpochStart]:
        return list(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self._entries[-1].epoch if self._entries else None

    @property
    def earliest_entry(self) -> EpochStart | None:
        return self._entries[0] if self._entries else None

    @property
    def has_unwritten_changes(self) -> bool:
        """Whether memory has changes that the file lacks."""
        return self._dirty

    @property
    def unwritten_from(self) -> Offset | None:
        """The start offset of the first epoch that the file lacks."""
        if self._entries == self._written:
            return None
        written = dict(self._written or ())
        for index, entry in enumerate(self._entries):
            start_offset = written.get(entry.epoch)
            # The log's start may have advanced; the file is cut there when it is read.
            if start_offset is None or (
                start_offset != entry.start_offset
                and (index > 0 or start_offset > entry.start_offset)
            ):
                return entry.start_offset
        return None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """The epoch starts at the offset. Does nothing if the latest epoch already covers it, else
        drops the entries that contradict it.
        """
        if self._assign(EpochStart(epoch, start_offset)):
            self._dirty = True

    def end_offset_for(
        self, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch at or below `epoch` and the offset where it ends (exclusive).
        (-1, -1) if that is unknown: no epoch was given, or one later than all of ours."""
        if epoch == NO_EPOCH or not self._entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._entries[-1].epoch:
            return epoch, log_end_offset
        later = bisect_right(self._entries, epoch, key=_epoch_of)
        if later == len(self._entries):
            return NO_EPOCH, NO_OFFSET
        end = self._entries[later].start_offset
        # Before our first epoch: its records are gone, and the caller continues at our start.
        return (self._entries[later - 1].epoch if later else epoch), end

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch of the record at `offset`; None before the first known one."""
        later = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[later - 1].epoch if later else None

    def previous_epoch(self, epoch: LeaderEpoch) -> LeaderEpoch | None:
        """The largest known epoch below `epoch`."""
        later = bisect_right(self._entries, epoch - 1, key=_epoch_of)
        return self._entries[later - 1].epoch if later else None

    def truncate_from_end(self, offset: Offset) -> None:
        """The log now ends at `offset`: drop the epochs that start there or later."""
        kept = [entry for entry in self._entries if entry.start_offset < offset]
        if offset >= 0 and len(kept) < len(self._entries):
            self._entries = kept
            self._dirty = True

    def truncate_from_start(self, offset: Offset) -> None:
        """The log now starts at `offset`: so does the epoch that covers it."""
        later = bisect_right(self._entries, offset, key=_start_of)
        if later:
            covering = EpochStart(self._entries[later - 1].epoch, offset)
            changed = later > 1 or self._entries[0] != covering
            self._entries[:later] = [covering]
            self._dirty |= changed

    def clear(self) -> None:
        self._entries = []
        self._dirty = True

    def flush(self) -> None:
        """Write the file if memory has changes. May run in any thread."""
        with self._writing:
            if not self._dirty:
                return
            # Changes from here on belong to the next flush.
            self._dirty = False
            entries = list(self._entries)
            if entries == self._written:
                return
            try:
                lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
                write_lines(self._filesystem, self.path, lines)
            except BaseException:
                self._dirty = True
                raise
            self._written = entries

    def flush_if_possible(self) -> None:
        """Skipped on a full disk: a recovery repairs a file with too many or too few entries."""
        with contextlib.suppress(DiskFullError):
            self.flush()

    def moved_to(self, path: Path) -> None:
        """The directory was renamed: only the stored path changes."""
        self.path = path

    def _assign(self, entry: EpochStart) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise ValueError(f"{self.path}: impossible {entry}")
        entries = self._entries
        if (
            entries
            and entry.epoch == entries[-1].epoch
            and entry.start_offset >= entries[-1].start_offset
        ):
            return False
        while entries and (
            entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset
        ):
            entries.pop()
        entries.append(entry)
        return True


def _read(filesystem: FileSystem, path: Path) -> list[EpochStart]:
    entries: list[EpochStart] = []
    for line in read_lines(filesystem, path):
        epoch_text, _, offset_text = line.partition(" ")
        epoch, offset = parse_number(epoch_text, INT32_MAX), parse_number(offset_text)
        if epoch is None or offset is None:
            raise CorruptCheckpointError(path, f"not an epoch and an offset: {excerpt(line)}")
        entry = EpochStart(LeaderEpoch(epoch), Offset(offset))
        if entries and not (epoch > entries[-1].epoch and offset > entries[-1].start_offset):
            raise CorruptCheckpointError(path, f"{entry} does not follow {entries[-1]}")
        entries.append(entry)
    return entries
