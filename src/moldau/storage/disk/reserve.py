"""A small file that reserves space in a log directory, so that on a full disk a node can still
start, stop and delete records. The content of the file is meaningless.
"""

import contextlib
import os
from pathlib import Path

from moldau.storage.disk.filesystem import FileSystem

RESERVE_FILE = "moldau-reserve"

_CHUNK_BYTES = 256 << 10


class Reserve:
    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._path = directory / RESERVE_FILE

    def take(self, bytes_max: int) -> None:
        """Reserves as much as there is. Raises OSError if that is less than `bytes_max`."""
        file = self._filesystem.open(self._path, create=True)
        try:
            missing = bytes_max - file.size()
            # A disk that compresses would store zeros in no space at all.
            chunk = os.urandom(min(max(missing, 0), _CHUNK_BYTES))
            while missing > 0:
                file.append([chunk[:missing]])
                missing -= len(chunk)
        finally:
            file.close()

    def release(self) -> bool:
        """Returns whether that made room."""
        # A failing disk is reported by the next write.
        with contextlib.suppress(OSError):
            is_there = self._filesystem.exists(self._path)
            self._filesystem.remove(self._path)
            return is_there
        return False
