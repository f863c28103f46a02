"""The names of a log directory's logs, as long as they may not be on the disk: a log that was just
created, renamed or deleted could come back under its old name after a power failure, or vanish.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.partition_metadata import PARTITION_METADATA_FILE
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.filesystem import sync_path

DoAll = Callable[[Callable[[Path], None], Sequence[Path]], Iterable[None]]
"""The builtin `map`, or a variant that uses threads."""


class UnsyncedNames:
    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._created: list[Path] = []
        """Logs whose directory entries and topic ids are not synced yet."""
        self._has_changed = False

    def created(self, path: Path) -> None:
        self._created.append(path)
        self._has_changed = True

    def renamed(self) -> None:
        self._has_changed = True

    def syncing(self, do_all: DoAll = map) -> Steps[None]:
        """Makes all changes since the last call durable. There may be a thousand: `do_all` may use
        threads.
        """
        if not self._has_changed:
            return
        created, self._created, self._has_changed = self._created, [], False

        def sync() -> None:
            for _ in do_all(self._sync_created, created):
                pass
            self._directory.filesystem.sync_directory(self._directory.path)

        try:
            with self._directory.offline_on_error:
                yield sync
        except BaseException:
            # The next call tries again.
            self._created += created
            self._has_changed = True
            raise

    def _sync_created(self, path: Path) -> None:
        """A missing path was deleted again in the meantime."""
        filesystem = self._directory.filesystem
        with contextlib.suppress(FileNotFoundError):
            sync_path(filesystem, path / PARTITION_METADATA_FILE)
        with contextlib.suppress(FileNotFoundError):
            filesystem.sync_directory(path)
