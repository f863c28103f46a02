"""A little room that a node keeps for itself in a log directory: with it a node can be started,
stopped and told to delete things when the disk is full. The file holds nothing.
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
        """As much as there is. Raises OSError if that is less than wanted."""
        file = self._filesystem.open(self._path, create=True)
        try:
            missing = bytes_max - file.size()
            # Zeros would take no room on a disk that compresses.
            chunk = os.urandom(min(max(missing, 0), _CHUNK_BYTES))
            while missing > 0:
                file.append([chunk[:missing]])
                missing -= len(chunk)
        finally:
            file.close()

    def release(self) -> bool:
        """Whether that made room."""
        # A disk that fails says so to whoever writes next.
        with contextlib.suppress(OSError):
            is_there = self._filesystem.exists(self._path)
            self._filesystem.remove(self._path)
            return is_there
        return False
