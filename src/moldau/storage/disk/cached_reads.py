"""Reads that never wait for a disk. Bytes in the page cache are read at once; for all others
NotCachedError carries the work that a thread must do before the request is repeated.

A thread opens files by name and touches no object of the log. The owner adopts the result if the
segment has not been replaced meanwhile.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from moldau.protocol.errors import MoldauError
from moldau.protocol.records.batches import BATCH_HEADER_SIZE
from moldau.storage.disk.cached_views import SIZE_MIN as VIEW_BYTES_MIN
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.segment.checked_bytes import Bounds, sound_end
from moldau.storage.segment.scan import PIECE_BYTES

Adopt = Callable[[], None]

_AHEAD_BYTES = 16 * 1024
"""Extra bytes that a thread reads: a read begins at an indexed batch and ends with the header of
the batch after the last one.
"""
_INTERVAL_BYTES = 4096 + 256
"""Covers the distance of two indexed batches that are small, and a header."""
_SMALL_BYTES = 64 * 1024
_AT_ONCE_BYTES_MAX = 1 << 20


class NotCachedError(MoldauError):
    """Call `load` in any thread; the log's owner then passes the result to `Log.adopt` and repeats
    the request. An error of the disk counts as one of the log's directory, as if the owner had met
    it.
    """

    def __init__(
        self,
        path: Path,
        work: Callable[[], Adopt],
        size_bytes: int,
        is_current: Callable[[], bool],
    ) -> None:
        super().__init__(f"{path}: {size_bytes} bytes are not in memory")
        self.size_bytes = size_bytes
        self._work = work
        self._is_current = is_current

    def load(self) -> Adopt:
        """Returns the step for the owner; never raises."""
        try:
            return self._work()
        except (OSError, DamagedFileError) as error:
            return partial(self._failed, error)

    def _failed(self, error: OSError | DamagedFileError) -> None:
        concerns_the_file = isinstance(error, FileNotFoundError | DamagedFileError)
        if self._is_current() or not concerns_the_file:
            raise error


class Loadable(Protocol):
    """An index that may not be in memory yet."""

    @property
    def path(self) -> Path: ...
    @property
    def is_loaded(self) -> bool: ...
    def loading(self) -> Callable[[], Adopt]:
        """Returns a function that reads the file in any thread. A broken file is not adopted."""


class ReadSegment(Protocol):
    """The segment that is being read."""

    times_shortened: int
    is_retired: bool

    @property
    def filesystem(self) -> FileSystem: ...
    @property
    def size(self) -> int: ...
    def path(self) -> Path: ...
    def unchanged_since_now(self) -> Callable[[], bool]:
        """Returns a check for later: is the file under the segment's name still the
        segment's own?
        """

    def read_cached(self, target: memoryview, position: int) -> int:
        """As `File.read_into` without waiting, not even to open the file."""

    def cached_view(self, position: int, size: int) -> memoryview | None:
        """As `File.cached_view`. The bytes are known to be sound."""

    def opened_in_thread(self) -> None:
        """A thread has opened the file, so opening it again does not wait for the disk."""

    def bounds(self, position: int) -> Bounds:
        """Bounds of the batches from `position` on."""

    def note_checked(self, start: int, end: int) -> None: ...
    def doubt(self) -> None:
        """Makes the next read check the whole segment again."""

    def examination(self) -> Callable[[], Adopt]:
        """Returns a function that looks for damage in the whole file, in any thread."""


class _LoadedBytes:
    """Bytes that a thread has read."""

    def __init__(self, segment: ReadSegment, start: int, target: memoryview) -> None:
        self.segment = segment
        self.times_shortened = segment.times_shortened
        self.start = start
        self.end = start + len(target)
        self.content = target
        """Shorter than requested if the file ends before."""

    def holds(self, segment: ReadSegment, start: int, end: int) -> bool:
        return (
            segment is self.segment
            and segment.times_shortened == self.times_shortened
            and self.start <= start
            and end <= self.end
        )


class CachedReads:
    """The reads of one request. Bytes loaded by threads are kept until `forget`. A caller that only
    sends the bytes on passes `sends_files`, which allows `File.cached_view`.
    """

    def __init__(self, buffers: ReadBuffers, *, sends_files: bool = False) -> None:
        self._buffers = buffers
        self._sends_files = sends_files
        self._loaded: list[_LoadedBytes] = []
        # Indexes that were loaded, and segments that were examined for damage.
        self._tried: set[Path] = set()
        self._wanted_bytes = 0
        self._reads_at_once = True

    def next_log(self, wanted_bytes: int, *, is_sure: bool = False) -> None:
        """The next read needs this many bytes; `is_sure` if every byte returned will be
        read too.
        """
        self._wanted_bytes = wanted_bytes
        self._reads_at_once = wanted_bytes <= (_AT_ONCE_BYTES_MAX if is_sure else _SMALL_BYTES)

    def send_no_files(self) -> None:
        """Call when later bytes may have to wait before they are sent."""
        self._sends_files = False

    def forget(self) -> None:
        """Drops the bytes that threads loaded."""
        self._loaded.clear()
        self._tried.clear()

    def examine(self, segment: ReadSegment) -> None:
        """The segment or one of its indexes looks wrong: have a thread examine it, once."""
        path = segment.path()
        if path not in self._tried:
            self._tried.add(path)
            raise NotCachedError(
                path, segment.examination(), PIECE_BYTES, segment.unchanged_since_now()
            )

    def need(self, segment: ReadSegment, index: Loadable) -> None:
        """Raises NotCachedError unless the index is in memory. A broken index is skipped here; the
        code that rebuilds indexes handles it.
        """
        path = index.path
        if not index.is_loaded and path not in self._tried:
            self._tried.add(path)

            def is_current() -> bool:
                return index.path == path and not segment.is_retired

            raise NotCachedError(path, index.loading(), 0, is_current)

    def read(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        """Shorter only if another program has truncated the file."""
        for loaded in self._loaded:
            if loaded.holds(segment, start, start + size):
                first = start - loaded.start
                return loaded.content[first : first + size]
        return self._read(segment, start, size)

    def view(self, segment: ReadSegment, start: int, size: int) -> memoryview | None:
        """A view to send instead of the bytes of `read`, or None."""
        if not self._sends_files or size < VIEW_BYTES_MIN:
            return None
        return segment.cached_view(start, size)

    def window(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        """As much as is cached from a batch's header on; at least the header, unless the file ends.
        Where that is little, or all of it will be needed, everything is read at once for `read` to
        find.
        """
        end = start + min(size, BATCH_HEADER_SIZE)
        for loaded in self._loaded:
            if loaded.holds(segment, start, end):
                return loaded.content[start - loaded.start :]
        at_once = self.read_at_once(segment, start, size)
        if at_once is None:
            return self._read(segment, start, size)
        return at_once.content[start - at_once.start :]

    def read_at_once(
        self, segment: ReadSegment, start: int, size: int = 0
    ) -> "_LoadedBytes | None":
        """All requested bytes from there on, or more; None if the segment must be
        examined first.
        """
        left = segment.size - start
        if self._loaded:
            needed = min(max(self._wanted_bytes, BATCH_HEADER_SIZE), left)
            for loaded in self._loaded:
                if loaded.holds(segment, start, start + needed):
                    return loaded
        all_bytes = min(max(size, self._wanted_bytes + _INTERVAL_BYTES), left)
        if not self._reads_at_once or (self._sends_files and all_bytes >= VIEW_BYTES_MIN):
            return None
        loaded = _LoadedBytes(segment, start, self._read(segment, start, all_bytes))
        self._loaded.append(loaded)
        return loaded

    def _read(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        target = self._buffers.take(size, start)
        try:
            return target[: segment.read_cached(target, start)]
        except BlockingIOError:
            # Raised outside of the except block: a context would hold the buffer.
            del target
        raise self._not_cached(segment, start, size)

    def _not_cached(self, segment: ReadSegment, start: int, size: int) -> NotCachedError:
        size = max(size, min(self._wanted_bytes + _AHEAD_BYTES, segment.size - start))
        loaded = _LoadedBytes(segment, start, self._buffers.take(size, start))
        filesystem, path = segment.filesystem, segment.path()
        bounds = segment.bounds(start)
        is_unchanged = segment.unchanged_since_now()

        def load() -> Adopt:
            file = filesystem.open(path)
            try:
                loaded.content = loaded.content[: file.read_into(loaded.content, start)]
            finally:
                file.close()
            # Reads begin at a batch. All batches are checked, even those checked before: these are
            # the bytes that the disk holds now.
            end = min(start + len(loaded.content), bounds.end)
            checked_end, _ = sound_end(loaded.content, start, end, bounds)
            return lambda: adopt(checked_end)

        def adopt(checked_end: int) -> None:
            # Compaction may have put another file under the name that the thread opened.
            if is_unchanged():
                segment.opened_in_thread()
                # The kernel reads ahead, so more of the page cache is fresh from the disk and
                # differs from the bytes that were checked.
                segment.doubt()
                segment.note_checked(start, checked_end)
                self._loaded.append(loaded)

        return NotCachedError(path, load, size, is_unchanged)
