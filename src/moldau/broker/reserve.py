"""A little room on each disk that a node keeps for itself: with it a node can still be started and
stopped when everything else is full. The file holds nothing; without it everything works the same.
"""

import contextlib
import logging
import os
from collections.abc import Iterable

from moldau.storage.directory import LogDirectory
from moldau.storage.failures import DISK_IS_FULL
from moldau.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)

RESERVE_FILE = "moldau-reserve"

_CHUNK_BYTES = 256 << 10


class Reserve:
    def __init__(self, directories: Iterable[LogDirectory], bytes_max: int) -> None:
        self._directories = list(directories)
        self._bytes_max = bytes_max

    def take(self) -> None:
        """As much as there is. Once a node runs: what it needed to start is written."""
        # Zeros would cost nothing on a disk that compresses.
        chunk = os.urandom(min(_CHUNK_BYTES, self._bytes_max))
        for directory in self._directories:
            if chunk and directory.is_online:
                try:
                    self._take(directory.filesystem, directory, chunk)
                except OSError as error:
                    reason = "it is full" if error.errno in DISK_IS_FULL else error.strerror
                    _log.warning("no room is kept in %s: %s", directory.path, reason)

    def _take(self, filesystem: FileSystem, directory: LogDirectory, chunk: bytes) -> None:
        file = filesystem.open(directory.path / RESERVE_FILE, create=True)
        try:
            while file.size() + len(chunk) <= self._bytes_max:
                file.append([chunk])
        finally:
            file.close()

    def release(self) -> None:
        """Before a start or a stop writes anything."""
        for directory in self._directories:
            # A disk that fails says so to whoever needs it.
            with contextlib.suppress(OSError):
                directory.filesystem.remove(directory.path / RESERVE_FILE)
