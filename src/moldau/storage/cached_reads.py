"""Reading for those who must not wait for a disk: what the page cache holds is read at once; for
the rest NotCachedError brings the work that a thread must do before the same is asked for again.

A thread opens files by their names and touches no object of the log. Its owner takes what it
brought, if the segment is still the one that was asked for.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from moldau.protocol.errors import MoldauError
from moldau.storage.cached_views import SIZE_MIN as VIEW_BYTES_MIN
from moldau.storage.checked_bytes import Bounds, sound_end
from moldau.storage.failures import DamagedFileError
from moldau.storage.filesystem import FileSystem
from moldau.storage.read_buffers import ReadBuffers
from moldau.storage.segment_scan import PIECE_BYTES

Adopt = Callable[[], None]

_AHEAD_BYTES = 16 * 1024
"""What a thread reads beyond what is wanted: reading begins at an indexed batch and ends with a
look at the next.
"""
_INTERVAL_BYTES = 4096 + 256
"""Between two indexed batches that are small, and a header."""
_SMALL_BYTES = 64 * 1024
_AT_ONCE_BYTES_MAX = 1 << 20
_HEADER_BYTES = 61


class NotCachedError(MoldauError):
    """Let any thread call `load`; the log's owner then gives what came of it to `Log.take` and asks
    again. An error of the disk is one of the log's directory, as if its owner had met it.
    """

    def __init__(
        self,
        path: Path,
        work: Callable[[], Adopt],
        size_bytes: int,
        is_asked_for: Callable[[], bool],
    ) -> None:
        super().__init__(f"{path}: {size_bytes} bytes are not in memory")
        self.size_bytes = size_bytes
        self._work = work
        self._is_asked_for = is_asked_for

    def load(self) -> Adopt:
        """What the owner shall do with it; never an error."""
        try:
            return self._work()
        except (OSError, DamagedFileError) as error:
            return partial(self._failed, error)

    def _failed(self, error: OSError | DamagedFileError) -> None:
        is_of_the_name = isinstance(error, FileNotFoundError | DamagedFileError)
        if self._is_asked_for() or not is_of_the_name:
            raise error


class Loadable(Protocol):
    """An index that may not be in memory yet."""

    @property
    def path(self) -> Path: ...
    @property
    def is_loaded(self) -> bool: ...
    def loading(self) -> Callable[[], Adopt]:
        """Reads the file, in any thread. If it is broken, nothing is adopted."""


class ReadSegment(Protocol):
    """The segment that is read from."""

    times_shortened: int
    is_retired: bool

    @property
    def filesystem(self) -> FileSystem: ...
    @property
    def size(self) -> int: ...
    def path(self) -> Path: ...
    def unchanged_since_now(self) -> Callable[[], bool]:
        """Asked later: was what a thread found under the segment's name the segment's own?"""

    def read_cached(self, target: memoryview, position: int) -> int:
        """As `File.read_into` without waiting, not even for the file to be opened."""

    def cached_view(self, position: int, size: int) -> memoryview | None:
        """As `File.cached_view`, of bytes that are known to be sound."""

    def opened_apart(self) -> None:
        """A thread had the file open: that it is there is known, so it costs nothing to open."""

    def unchecked_end(self, position: int) -> int:
        """Bytes from `position` up to there were found when the file was opened."""

    def bounds(self, position: int) -> Bounds:
        """Of the batches from `position` on."""

    def note_checked(self, start: int, end: int) -> None: ...
    def examination(self) -> Callable[[], Adopt]:
        """Looks for damage in the whole file, in any thread."""


class _LoadedBytes:
    """What a thread has read."""

    def __init__(self, segment: ReadSegment, start: int, target: memoryview) -> None:
        self.segment = segment
        self.times_shortened = segment.times_shortened
        self.start = start
        self.end = start + len(target)
        self.content = target
        """Shorter than was asked for if the file ends before."""

    def holds(self, segment: ReadSegment, start: int, end: int) -> bool:
        return (
            segment is self.segment
            and segment.times_shortened == self.times_shortened
            and self.start <= start
            and end <= self.end
        )


class CachedReads:
    """The reads of one request. What threads brought for it is kept until `forget`. Whoever only
    sends what it reads says so with `sends_files`: then it can be a `File.cached_view`.
    """

    def __init__(self, buffers: ReadBuffers, *, sends_files: bool = False) -> None:
        self._buffers = buffers
        self._sends_files = sends_files
        self._loaded: list[_LoadedBytes] = []
        self._indexes_tried: set[Path] = set()
        self._examined: set[Path] = set()
        self._wanted_bytes = 0
        self._reads_at_once = True

    def next_log(self, wanted_bytes: int, *, is_sure: bool = False) -> None:
        """So much is wanted next, and `is_sure` if all that is found will be read too."""
        self._wanted_bytes = wanted_bytes
        self._reads_at_once = wanted_bytes <= (_AT_ONCE_BYTES_MAX if is_sure else _SMALL_BYTES)

    def forget(self) -> None:
        """What threads brought."""
        self._loaded.clear()
        self._indexes_tried.clear()
        self._examined.clear()

    def examine(self, segment: ReadSegment) -> None:
        """Something is wrong with it, or with an index: have a thread look, once."""
        path = segment.path()
        if path not in self._examined:
            self._examined.add(path)
            raise NotCachedError(
                path, segment.examination(), PIECE_BYTES, segment.unchanged_since_now()
            )

    def need(self, segment: ReadSegment, index: Loadable) -> None:
        """One that is broken is left to whoever rebuilds it."""
        path = index.path
        if not index.is_loaded and path not in self._indexes_tried:
            self._indexes_tried.add(path)

            def is_asked_for() -> bool:
                return index.path == path and not segment.is_retired

            raise NotCachedError(path, index.loading(), 0, is_asked_for)

    def read(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        """Shorter only where the file ends, though nobody of this process has cut it."""
        for loaded in self._loaded:
            if loaded.holds(segment, start, start + size):
                return loaded.content[start - loaded.start :][:size]
        if self._sends_files and size >= VIEW_BYTES_MIN:
            view = segment.cached_view(start, size)
            if view is not None:
                return view
        return self._read(segment, start, size)

    def window(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        """As much as is at hand from a batch's header on; at least the header, unless the file
        ends. Where that is little, or will be needed, all is read at once, and `read` finds it.
        """
        end = start + min(size, _HEADER_BYTES)
        for loaded in self._loaded:
            if loaded.holds(segment, start, end):
                return loaded.content[start - loaded.start :]
        all_bytes = min(max(size, self._wanted_bytes + _INTERVAL_BYTES), segment.size - start)
        is_sent_from_file = self._sends_files and all_bytes >= VIEW_BYTES_MIN
        if is_sent_from_file or not self._reads_at_once:
            return self._read(segment, start, size)
        loaded = _LoadedBytes(segment, start, self._read(segment, start, all_bytes))
        self._loaded.append(loaded)
        return loaded.content

    def _read(self, segment: ReadSegment, start: int, size: int) -> memoryview:
        target = self._buffers.take(size, start)
        try:
            return target[: segment.read_cached(target, start)]
        except BlockingIOError:
            raise self._not_cached(segment, start, size) from None

    def _not_cached(self, segment: ReadSegment, start: int, size: int) -> NotCachedError:
        size = max(size, min(self._wanted_bytes + _AHEAD_BYTES, segment.size - start))
        loaded = _LoadedBytes(segment, start, self._buffers.take(size, start))
        filesystem, path = segment.filesystem, segment.path()
        bounds = segment.bounds(start)
        unchecked_end = min(segment.unchecked_end(start), bounds.end)
        is_unchanged = segment.unchanged_since_now()

        def load() -> Adopt:
            file = filesystem.open(path)
            try:
                loaded.content = loaded.content[: file.read_into(loaded.content, start)]
            finally:
                file.close()
            # Where reads begin, a batch does.
            end = start + min(len(loaded.content), max(unchecked_end - start, 0))
            checked_end, _ = sound_end(loaded.content, start, end, bounds)
            return lambda: adopt(checked_end)

        def adopt(checked_end: int) -> None:
            # Compaction may have put another file under the name that the thread was given.
            if is_unchanged():
                segment.opened_apart()
                segment.note_checked(start, checked_end)
                self._loaded.append(loaded)

        return NotCachedError(path, load, size, is_unchanged)
