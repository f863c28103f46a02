"""Reading from a segment's log file: whole batches, whose checksums are verified on their first
read, and windows of headers. With `CachedReads` nothing waits for the disk.
"""

import errno
from collections.abc import Callable

from moldau.storage.disk.cached_reads import Adopt, CachedReads
from moldau.storage.log.damaged_bytes import DamagedBytes, find_damage
from moldau.storage.segment.checked_bytes import OFFSET_BYTES, Bounds, CheckedBytes
from moldau.storage.segment.files import SegmentFiles
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import Buffer

# Enough for the batches between two index entries; a longer batch costs another read.
_WALK_BYTES = 8192
_TAIL_BYTES = 4 << 20


class ReadableSegment(SegmentFiles):
    def slice(self, start: int, end: int, reads: CachedReads | None = None) -> memoryview:
        """Bytes of whole batches. Without `reads` it may wait for the disk."""
        size = read_bytes = end - start
        is_checked = self.is_checked(start, end)
        if is_checked and reads is not None:
            view = reads.view(self, start, size)
            if view is not None:
                return view
        if not is_checked:
            # The next batch's offset shows whether the last batch's is right.
            read_bytes = min(size + OFFSET_BYTES, self.size - start)
        if reads is not None:
            content = reads.read(self, start, read_bytes)
        else:
            content = memoryview(bytearray(read_bytes))
            content = content[: self.file.read_into(content, start)]
        if is_checked and len(content) == size:
            return content
        try:
            self._check(content, start, end)
        except CorruptSegmentError:
            if reads is not None:
                reads.examine(self)
            raise
        return content[:size]

    def _check(self, content: memoryview, start: int, end: int) -> None:
        if len(content) < end - start:
            raise CorruptSegmentError(
                self.path(), f"the file ends at {start + len(content)}, before its last batch does"
            )
        checked = self._checked
        if checked is not None and not checked.is_checked(start, end):
            checked.check(self.path(), content, start, end, self.bounds(start))

    def is_checked(self, start: int, end: int) -> bool:
        """Whether its batches are known to be sound."""
        return self._checked is not None and self._checked.is_checked(start, end)

    def bounds(self, position: int) -> Bounds:
        """Bounds of the batches from `position` on."""
        for each in self.damaged:
            if position < each.end:
                end, end_offset = max(position, each.position), each.first_offset
                return Bounds(self.base_offset, self.offset_limit, end, end_offset)
        return Bounds(self.base_offset, self.offset_limit, self.size, self.offset_limit)

    def sound_end(self, position: int) -> int:
        """The end of a read from `position`: `position` itself if the bytes there are known to be
        damaged.
        """
        for each in self.damaged:
            if position < each.end:
                return max(position, each.position)
        return self.size

    def window(self, position: int, size: int, reads: CachedReads | None = None) -> Buffer:
        length = min(_WALK_BYTES, size - position)
        if reads is not None:
            return reads.window(self, position, length)
        return self.file.read(position, length)

    # The protocol `ReadSegment` of `CachedReads`

    def read_cached(self, target: memoryview, position: int) -> int:
        if self._file is None:
            raise BlockingIOError(errno.EAGAIN, "not open", str(self.path()))
        file = self._file
        if not self.sealed and not file.reports_cached and position + _TAIL_BYTES >= file.size():
            # Just created: its bytes, if any, are in the cache.
            return file.read_into(target, position)
        return file.read_into(target, position, wait=False)

    def cached_view(self, position: int, size: int) -> memoryview | None:
        return None if self._file is None else self._file.cached_view(position, size)

    def opened_in_thread(self) -> None:
        _ = self.file

    def note_checked(self, start: int, end: int) -> None:
        if self._checked is not None:
            self._checked.note(start, end)

    def doubt(self) -> None:
        if self._checked is not None:
            self._checked.doubt_all(self.size)

    def trust(self) -> None:
        """A recovery scan has checked every byte."""
        self._checked = CheckedBytes(0)

    # Damage

    def examination(self) -> Callable[[], Adopt]:
        """Returns a function that searches the whole file for damage, in any thread."""
        filesystem, path, size = self.filesystem, self.path(), self.size
        offsets, is_unchanged = self.offsets, self.unchanged_since_now()

        def examine() -> Adopt:
            file = filesystem.open(path)
            try:
                damaged = find_damage(file, size, offsets)
            finally:
                file.close()
            return lambda: adopt(damaged)

        def adopt(damaged: tuple[DamagedBytes, ...]) -> None:
            if is_unchanged():
                self.note_damaged(damaged)

        return examine

    def examine(self) -> None:
        """As `examination`, in the calling thread."""
        self.note_damaged(find_damage(self.file, self.size, self.offsets))

    def note_damaged(self, damaged: tuple[DamagedBytes, ...]) -> None:
        """`damaged` is all damage of the segment; the log is notified of new damage."""
        known = {(each.position, each.end) for each in self.damaged}
        self._forget_located()
        self.damaged = damaged
        new = [each for each in damaged if (each.position, each.end) not in known]
        if damaged and self.on_damage is not None:
            self.on_damage(self, new)
