"""Offset index and time index of a segment. An index is a cache of the log. It is loaded on first
use; new entries are kept in memory and written in small groups, and all of them are in the file
after `write_out` (so after `flush`, `rename` and `close`). After an unclean stop the log rebuilds
it. On CorruptIndexError from any method: `reset` and rebuild.
"""

import contextlib
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from itertools import islice
from operator import ge, gt
from pathlib import Path
from typing import ClassVar

from moldau.storage.disk.failures import (
    CorruptIndexError,
    DiskFullError,
    InvalidIndexEntryError,
    refused_if_full,
)
from moldau.storage.disk.filesystem import File, FileSystem
from moldau.types import INT32_MAX, NO_TIMESTAMP, Offset, TimestampMs

_SWAP = sys.byteorder == "little"
# One write of about 4 KiB for each 2 MiB of log at Kafka's default interval.
_PENDING_ENTRIES_MAX = 512
# A multiple of both entry sizes, so that a piece never cuts an entry.
_READ_BYTES = 8 * 12 * 1024


class _Index:
    """The part that both kinds share: a sorted column of keys, a column of values, and the file."""

    entry_bytes: ClassVar[int]

    def __init__(
        self, filesystem: FileSystem, path: Path, base_offset: Offset, max_bytes: int
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry_bytes
        self._filesystem = filesystem
        self._file: File | None = None
        self._loaded = False
        self._broken: CorruptIndexError | None = None
        """The error of a thread that failed to load the file."""
        # Entries [0, _written) are in the file.
        self._written = 0
        self._is_in_memory = False
        self._keys, self._values = self._unpack(b"")

    def _unpack(self, content: bytes) -> tuple["array[int]", "array[int]"]:
        raise NotImplementedError

    def _pack(self, keys: "array[int]", values: "array[int]") -> bytes:
        raise NotImplementedError

    def _complaint(self, keys: "array[int]", values: "array[int]") -> str | None:
        raise NotImplementedError

    @property
    def entry_count(self) -> int:
        self._load()
        return len(self._keys)

    @property
    def size_in_bytes(self) -> int:
        return self.entry_count * self.entry_bytes

    @property
    def bytes_at_most(self) -> int:
        """As `size_in_bytes`, or the size of the file if it was not loaded: it may have space
        ahead.
        """
        if self._loaded:
            return self.size_in_bytes
        has_file = self._filesystem.exists(self.path)
        return self._filesystem.file_size(self.path) if has_file else 0

    def can_append_offset(self, offset: Offset) -> bool:
        return 0 <= offset - self.base_offset <= INT32_MAX

    def sanity_check(self) -> None:
        """Raises CorruptIndexError if an append-only index could not have left this file."""
        self._load()

    def reset(self) -> None:
        """Drop all entries without reading them, in memory and in the file."""
        self._keys, self._values = self._unpack(b"")
        self._loaded = True
        self._written = 0
        if self._file is not None or self._filesystem.exists(self.path):
            self._opened().truncate(0)

    def begin_in_memory(self) -> None:
        """Begin without entries, and without reading the file until the next `write_out`."""
        self.abandon()
        self._is_in_memory = True

    def write_out(self) -> File:
        """Write all entries to the file, create it if needed, and trim the space that Kafka
        allocated ahead. The caller may `sync` the returned file in another thread.
        """
        self._load()
        self._is_in_memory = False
        file = self._opened()
        end = self._written * self.entry_bytes
        if file.size() != end:
            file.truncate(end)
        if self._written < len(self._keys):
            file.append([self._pack(self._keys[self._written :], self._values[self._written :])])
            self._written = len(self._keys)
        return file

    def flush(self) -> None:
        self.write_out().sync()

    def write_pending(self) -> None:
        """After this call, a rename needs no descriptor."""
        if self._loaded and (
            self._written < len(self._keys) or not self._filesystem.exists(self.path)
        ):
            self.write_out()

    def rename(self, path: Path) -> None:
        """Works for a broken index too: one that was not loaded stays unread."""
        self.write_pending()
        if self._loaded or self._filesystem.exists(self.path):
            self._filesystem.rename(self.path, path)
        self.path = path

    def moved_to(self, path: Path) -> None:
        """The directory was renamed: only the stored path changes."""
        self.path = path

    def close(self) -> None:
        """Write pending entries, free handle and memory. A later use opens the index again. The
        file exists afterwards even if it is empty: Kafka treats a missing index as damage.
        """
        if self._loaded or not self._filesystem.exists(self.path):
            self.write_out()
            self._loaded = False
            self._written = 0
            self._keys, self._values = self._unpack(b"")
        self.release()

    def remove(self) -> None:
        self.abandon()
        self._filesystem.remove(self.path)

    def abandon(self) -> None:
        """Free the handle, write nothing: the directory failed or the file will be deleted."""
        self._loaded = True
        self._keys, self._values = self._unpack(b"")
        self._written = 0
        self.release()

    def release(self) -> None:
        """Free the handle; entries not written yet stay in memory."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path, create=True)
        return self._file

    @property
    def is_loaded(self) -> bool:
        return self._loaded

    def loading(self) -> Callable[[], Callable[[], None]]:
        """Returns a function that reads the file in any thread; its result is then called by the
        owner. A broken file raises at its first use.
        """
        path = self.path

        def adopt(columns: tuple["array[int]", "array[int]"]) -> None:
            if not self._loaded and self.path == path:
                self._take(columns)

        def note_broken(error: CorruptIndexError) -> None:
            if not self._loaded and self.path == path:
                self._broken = error

        def read() -> Callable[[], None]:
            try:
                columns = self._read(path)
            except CorruptIndexError as error:
                return partial(note_broken, error)
            return lambda: adopt(columns)

        return read

    def _load(self) -> None:
        if not self._loaded:
            if self._broken is not None:
                error, self._broken = self._broken, None
                raise error
            self._take(self._read(self.path))

    def _take(self, columns: tuple["array[int]", "array[int]"]) -> None:
        self._keys, self._values = columns
        self._written = len(self._keys)
        self._loaded = True

    def _read(self, path: Path) -> tuple["array[int]", "array[int]"]:
        content, size = self._read_entries(path)
        if size % self.entry_bytes:
            raise CorruptIndexError(path, f"{size} bytes are not a multiple of {self.entry_bytes}")
        keys, values = self._unpack(content)
        complaint = self._complaint(keys, values)
        if complaint:
            raise CorruptIndexError(path, complaint)
        return keys, values

    def _read_entries(self, path: Path) -> tuple[bytes, int]:
        """The entries before the zeros that Kafka allocates ahead, and the size of the file."""
        if not self._filesystem.exists(path):
            return b"", 0
        file = self._filesystem.open(path)
        try:
            size = file.size()
            zero = bytes(self.entry_bytes)
            pieces: list[bytes] = []
            for start in range(0, size, _READ_BYTES):
                pieces.append(file.read(start, min(_READ_BYTES, size - start)))
                if pieces[-1].endswith(zero):
                    break
        finally:
            file.close()
        content = b"".join(pieces)
        used = len(content.rstrip(b"\0"))
        entries = -(-used // self.entry_bytes)
        if not entries and size == self.entry_bytes:
            # One entry is never allocated ahead: this one was written.
            entries = 1
        return content[: entries * self.entry_bytes], size

    def _keep(self, count: int) -> None:
        if count < len(self._keys):
            del self._keys[count:]
            del self._values[count:]
            if count < self._written:
                self._written = count
                self._opened().truncate(count * self.entry_bytes)

    def _add(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)
        if len(self._keys) - self._written >= _PENDING_ENTRIES_MAX and not self._is_in_memory:
            # The log has grown already: on a full disk entries wait in memory.
            with contextlib.suppress(DiskFullError), refused_if_full(self.path):
                self.write_out()

    def _relative(self, offset: Offset) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise InvalidIndexEntryError(
                f"{self.path}: offset {offset} does not fit base offset {self.base_offset}"
            )
        return relative

    def _refuse(self, key: int, value: int, why: str) -> InvalidIndexEntryError:
        return InvalidIndexEntryError(f"{self.path}: entry ({key}, {value}) {why}")


class OffsetIndex(_Index):
    """Offset of a batch's last record -> position of the batch in the segment; sparse."""

    entry_bytes = 8

    @property
    def entries(self) -> list[tuple[Offset, int]]:
        self._load()
        base = self.base_offset
        return [
            (Offset(base + key), value) for key, value in zip(self._keys, self._values, strict=True)
        ]

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    @property
    def last_offset(self) -> Offset:
        """The base offset if there is no entry."""
        self._load()
        return Offset(self.base_offset + self._keys[-1]) if self._keys else self.base_offset

    def entry(self, number: int) -> tuple[Offset, int]:
        self._load()
        return Offset(self.base_offset + self._keys[number]), self._values[number]

    def lookup(self, offset: Offset) -> tuple[Offset, int]:
        """The greatest entry at or before `offset`, or the start of the segment."""
        if not self._loaded:
            self._load()
        slot = bisect_right(self._keys, offset - self.base_offset) - 1
        if slot < 0:
            return self.base_offset, 0
        return Offset(self.base_offset + self._keys[slot]), self._values[slot]

    def position_well_before(self, position: int) -> int:
        """The position of the second to last entry at or before `position`; the start if there are
        not two.
        """
        self._load()
        slot = bisect_right(self._values, position) - 2
        return self._values[slot] if slot >= 0 else 0

    def position_before(self, position: int) -> int:
        """The position of the last entry before `position`; the start if there is none."""
        self._load()
        slot = bisect_left(self._values, position) - 1
        return self._values[slot] if slot >= 0 else 0

    def offset_at_or_after(self, position: int) -> Offset | None:
        """An offset that is certainly after all batches that start before `position`."""
        self._load()
        slot = bisect_left(self._values, position)
        if slot == len(self._values):
            return None
        return Offset(self.base_offset + self._keys[slot])

    def append(self, offset: Offset, position: int) -> None:
        if not self._loaded:
            self._load()
        relative = self._relative(offset)
        if not 0 <= position <= INT32_MAX:
            raise self._refuse(offset, position, "has an impossible position")
        keys = self._keys
        if keys and (relative <= keys[-1] or position < self._values[-1]):
            raise self._refuse(offset, position, f"does not follow {self.entry(-1)}")
        if len(keys) >= self.max_entries:
            raise self._refuse(offset, position, "finds the index full")
        self._add(relative, position)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or after `offset`."""
        self._load()
        self._keep(bisect_left(self._keys, offset - self.base_offset))

    def _unpack(self, content: bytes) -> tuple["array[int]", "array[int]"]:
        both = array("i", content)
        if _SWAP:
            both.byteswap()
        return both[0::2], both[1::2]

    def _pack(self, keys: "array[int]", values: "array[int]") -> bytes:
        both = array("i", bytes(8 * len(keys)))
        both[0::2] = keys
        both[1::2] = values
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    def _complaint(self, keys: "array[int]", values: "array[int]") -> str | None:
        if keys and (keys[0] < 0 or values[0] < 0):
            return "the first entry is negative"
        if any(map(ge, keys, islice(keys, 1, None))):
            return "the offsets do not rise"
        if any(map(gt, values, islice(values, 1, None))):
            return "the positions do not rise"
        return None


class TimeIndex(_Index):
    """Largest timestamp so far -> offset of the record that has it. Both rise."""

    entry_bytes = 12

    @property
    def entries(self) -> list[tuple[TimestampMs, Offset]]:
        self._load()
        base = self.base_offset
        return [
            (TimestampMs(key), Offset(base + value))
            for key, value in zip(self._keys, self._values, strict=True)
        ]

    @property
    def is_full(self) -> bool:
        """One entry is reserved for sealing the segment."""
        return self.entry_count >= self.max_entries - 1

    @property
    def last_entry(self) -> tuple[TimestampMs, Offset]:
        """(-1, base offset) if there is no entry."""
        if not self._loaded:
            self._load()
        if not self._keys:
            return NO_TIMESTAMP, self.base_offset
        return TimestampMs(self._keys[-1]), Offset(self.base_offset + self._values[-1])

    def entry(self, number: int) -> tuple[TimestampMs, Offset]:
        self._load()
        return TimestampMs(self._keys[number]), Offset(self.base_offset + self._values[number])

    def lookup(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset]:
        """The last entry whose timestamp is at most `timestamp`, or (-1, base offset)."""
        self._load()
        slot = bisect_right(self._keys, timestamp) - 1
        return self.entry(slot) if slot >= 0 else (NO_TIMESTAMP, self.base_offset)

    def append(self, timestamp: TimestampMs, offset: Offset, *, sealing: bool = False) -> None:
        """A timestamp that is not larger than the last one adds nothing. `sealing` may use the
        entry that `is_full` reserves.
        """
        if not self._loaded:
            self._load()
        keys = self._keys
        relative = self._relative(offset)
        if keys and (timestamp < keys[-1] or relative < self._values[-1]):
            raise self._refuse(timestamp, offset, f"does not follow {self.last_entry}")
        if timestamp <= (keys[-1] if keys else NO_TIMESTAMP):
            return
        if len(keys) >= self.max_entries - (0 if sealing else 1):
            raise self._refuse(timestamp, offset, "finds the index full")
        self._add(timestamp, relative)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries whose offset is at or after `offset`."""
        self._load()
        self._keep(bisect_left(self._values, offset - self.base_offset))

    def _unpack(self, content: bytes) -> tuple["array[int]", "array[int]"]:
        # Three columns of 32 bits; the first two are the halves of the timestamp.
        words = array("i", content)
        values = words[2::3]
        halves = array("i", bytes(8 * len(values)))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        keys = array("q", halves.tobytes())
        if _SWAP:
            keys.byteswap()
            values.byteswap()
        return keys, values

    def _pack(self, keys: "array[int]", values: "array[int]") -> bytes:
        entry = struct.Struct(">qi")
        return b"".join(map(entry.pack, keys, values))

    def _complaint(self, keys: "array[int]", values: "array[int]") -> str | None:
        if keys and (keys[0] < 0 or values[0] < 0):
            return "the first entry is negative"
        if any(map(ge, keys, islice(keys, 1, None))):
            return "the timestamps do not rise"
        if any(map(gt, values, islice(values, 1, None))):
            return "the offsets fall"
        return None
