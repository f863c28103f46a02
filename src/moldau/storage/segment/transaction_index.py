"""The aborted transactions whose abort marker is in a segment: 34 bytes each, in the order of their
markers. The file exists only if there is one. Unlike with the offset index, a missing entry is not
harmless: it would show aborted records to read_committed consumers.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from moldau.storage.disk.failures import CorruptIndexError, InvalidIndexEntryError
from moldau.storage.disk.filesystem import File, FileSystem, read_whole
from moldau.types import Offset, ProducerId

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_last_offset_of = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    # The offset of the abort marker.
    last_offset: Offset
    # The last stable offset right after the abort.
    last_stable_offset: Offset


class TransactionIndex:
    def __init__(self, filesystem: FileSystem, path: Path, base_offset: Offset) -> None:
        self.path = path
        self.base_offset = base_offset
        self._filesystem = filesystem
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None
        self._unsynced = False

    @property
    def entries(self) -> list[AbortedTransaction]:
        return list(self._loaded())

    @property
    def is_empty(self) -> bool:
        return not self._loaded()

    def append(self, aborted: AbortedTransaction) -> None:
        """Markers must come in log order; others are refused."""
        entries = self._loaded()
        previous = entries[-1].last_offset if entries else Offset(-1)
        if aborted.last_offset <= previous:
            raise InvalidIndexEntryError(
                f"{self.path}: abort at {aborted.last_offset} does not follow {previous}"
            )
        self._unsynced = True
        self._opened().append([_ENTRY.pack(_VERSION, *aborted)])
        entries.append(aborted)

    def collect(
        self, fetch_offset: Offset, upper_bound_offset: Offset
    ) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [fetch_offset, upper_bound_offset), and whether the list
        is complete: if not, later segments may have more."""
        entries = self._loaded()
        overlapping: list[AbortedTransaction] = []
        for slot in range(bisect_left(entries, fetch_offset, key=_last_offset_of), len(entries)):
            aborted = entries[slot]
            if aborted.first_offset < upper_bound_offset:
                overlapping.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return overlapping, True
        return overlapping, False

    def truncate_to(self, offset: Offset) -> None:
        """Drop the aborts whose marker is at or after `offset`."""
        entries = self._loaded()
        keep = bisect_left(entries, offset, key=_last_offset_of)
        if keep < len(entries):
            self._unsynced = True
            self._opened().truncate(keep * ENTRY_BYTES)
            del entries[keep:]

    def reset(self) -> None:
        """Drop everything without reading it."""
        if self._file is not None or self._filesystem.exists(self.path):
            self._unsynced = True
            self._opened().truncate(0)
        self._entries = []

    def sanity_check(self) -> None:
        """Raises CorruptIndexError if the file is not a list of aborts of this segment."""
        self._loaded()

    def take_unsynced(self) -> bool:
        """Whether the file was changed since the previous call; the caller syncs it then."""
        unsynced, self._unsynced = self._unsynced, False
        return unsynced

    def flush(self) -> None:
        if self.take_unsynced():
            self._opened().sync()

    def rename(self, path: Path) -> None:
        if self._file is not None or self._filesystem.exists(self.path):
            self._filesystem.rename(self.path, path)
        self.path = path

    def moved_to(self, path: Path) -> None:
        """The directory was renamed: only the stored path changes."""
        self.path = path

    def close(self) -> None:
        """A later use opens the index again."""
        self._entries = None
        self.release()

    def release(self) -> None:
        """Free the handle; the entries stay in memory."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def remove(self) -> None:
        self.close()
        self._filesystem.remove(self.path)

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path, create=True)
        return self._file

    def _loaded(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._read(self.path)
        return self._entries

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    def loading(self) -> Callable[[], Callable[[], None]]:
        """Returns a function that reads the file in any thread; its result is then called by the
        owner. A broken file is ignored here: its first use raises.
        """
        path = self.path

        def adopt(entries: list[AbortedTransaction]) -> None:
            if self._entries is None and self.path == path:
                self._entries = entries

        def read() -> Callable[[], None]:
            try:
                entries = self._read(path)
            except CorruptIndexError:
                return lambda: None
            return lambda: adopt(entries)

        return read

    def _read(self, path: Path) -> list[AbortedTransaction]:
        if not self._filesystem.exists(path):
            return []
        content = read_whole(self._filesystem, path)
        if len(content) % ENTRY_BYTES:
            raise CorruptIndexError(
                path, f"{len(content)} bytes are not a multiple of {ENTRY_BYTES}"
            )
        entries: list[AbortedTransaction] = []
        previous = self.base_offset - 1
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(content):
            if version != _VERSION:
                raise CorruptIndexError(path, f"unknown entry version {version}")
            if not (previous < last and 0 <= first <= last and stable >= 0 and producer_id >= 0):
                raise CorruptIndexError(
                    path,
                    f"impossible abort of producer {producer_id}: first offset {first}, "
                    f"last {last}, last stable {stable}, after {previous}",
                )
            entries.append(
                AbortedTransaction(
                    ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)
                )
            )
            previous = last
        return entries
