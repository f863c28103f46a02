"""Watches and blocks the syncs of nodes in this process, at the file system interface."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for

from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem


class DiskWatch:
    """Records which threads synced which files. `block` holds syncs until `release`."""

    def __init__(self) -> None:
        self.syncs: list[tuple[str, str]] = []
        """The thread's name and the path."""
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Semaphore(0)
        """One for each sync that began to wait."""

    def seen(self, path: Path) -> None:
        self.syncs.append((threading.current_thread().name, str(path)))
        if not self._open.is_set():
            self.waiting.release()
            assert self._open.wait(60), "the disk was never released"

    def block(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def until_synced(self, name: str) -> None:
        wait_for(lambda: any(name in path for _, path in self.syncs), f"{name} on disk")

    def of_thread(self, name: str) -> list[str]:
        return [path for thread, path in self.syncs if thread == name]


@pytest.fixture
def disk_watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskWatch]:
    watch = DiskWatch()
    sync_file, hold = DiskFile.sync, DiskFileSystem.hold_directory

    def sync(self: DiskFile) -> None:
        watch.seen(self.path)
        sync_file(self)

    @contextlib.contextmanager
    def hold_directory(self: DiskFileSystem, path: Path) -> Iterator[Callable[[], None]]:
        with hold(self, path) as sync_held:

            def seen() -> None:
                watch.seen(path)
                sync_held()

            yield seen

    monkeypatch.setattr(DiskFile, "sync", sync)
    monkeypatch.setattr(DiskFileSystem, "hold_directory", hold_directory)
    try:
        yield watch
    finally:
        watch.release()
