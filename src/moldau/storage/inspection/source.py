"""Reads files for an inspection: read-only, never mapped (a live broker may truncate them), and in
windows, so that a segment of any size takes a few megabytes.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem, FileSystem

WINDOW_BYTES = 4 * 1024 * 1024


class ReadOnlyDisk(DiskFileSystem):
    """The real disk, for reading only: opens every readable file, even if it is not writable."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if create:
            raise PermissionError(f"{path}: an inspection creates no files")
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return DiskFile(path, fd)


class InspectedFile:
    """One file open for reading. `on_progress` is called with the number of bytes read."""

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self.path = path
        self._file = filesystem.open(path)
        self._on_progress = on_progress
        self.size_bytes = self._file.size()
        self._window = b""
        self._window_start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self, position: int, length: int) -> bytes:
        """Shorter than `length` only where the file ends, or was truncated since it was opened."""
        return self._file.read(position, length)

    def window(self, position: int, length: int) -> memoryview:
        """As `read`, through a window that moves forward: one large read serves many small ones."""
        start = position - self._window_start
        if start < 0 or start + length > len(self._window):
            self._window = self.read(position, max(length, WINDOW_BYTES))
            self._window_start = position
            start = 0
            if self._on_progress is not None:
                self._on_progress(len(self._window))
        return memoryview(self._window)[start : start + length]
