"""Reading from a segment's log file: whole batches, whose checksums are checked when they are first
read, and windows of headers. With `CachedReads` nothing waits for the disk.
"""

import errno

from moldau.storage.cached_reads import CachedReads
from moldau.storage.checked_bytes import CheckedBytes
from moldau.storage.segment_files import SegmentFiles
from moldau.storage.segment_walk import CorruptSegmentError
from moldau.types import Buffer

# Enough for the batches between two index entries; a batch that is longer costs another read.
_WALK_BYTES = 8192
_TAIL_BYTES = 4 << 20


class ReadableSegment(SegmentFiles):
    def slice(self, start: int, end: int, reads: CachedReads | None = None) -> memoryview:
        """Bytes of whole batches. Without `reads` it may wait for the disk."""
        size = end - start
        if reads is not None:
            content = reads.read(self, start, size)
        else:
            content = memoryview(bytearray(size))
            content = content[: self.file.read_into(content, start)]
        if len(content) < size:
            raise CorruptSegmentError(
                self.path(), f"the file ends at {start + len(content)}, before its last batch does"
            )
        checked = self._checked
        if checked is not None and start < checked.found_bytes:
            checked.check(self.path(), content, start)
        return content

    def window(self, position: int, size: int, reads: CachedReads | None = None) -> Buffer:
        length = min(_WALK_BYTES, size - position)
        if reads is not None:
            return reads.window(self, position, length)
        return self.file.read(position, length)

    # What `CachedReads` needs

    def read_cached(self, target: memoryview, position: int) -> int:
        if self._file is None:
            raise BlockingIOError(errno.EAGAIN, "not open", str(self.path()))
        file = self._file
        if not file.tells_cached and not self.sealed and position + _TAIL_BYTES >= file.size():
            # It was written moments ago: if anything is cached, this is.
            return file.read_into(target, position)
        return file.read_into(target, position, wait=False)

    def opened_apart(self) -> None:
        _ = self.file

    def unchecked_end(self, position: int) -> int:
        if self._checked is None:
            # What the file holds now is what will be found when it is opened.
            return self.size
        return self._checked.unchecked_end(position)

    def note_checked(self, start: int, end: int) -> None:
        if self._checked is not None:
            self._checked.note(start, end)

    def trust(self) -> None:
        """A recovery scan has checked every byte."""
        self._checked = CheckedBytes(0)
