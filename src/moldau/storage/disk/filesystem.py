"""The seam between the log and the disk. All storage code goes through `FileSystem` and `File`, so
that the simulated disk in `moldau.testing` can tear writes, lose unsynced data and fail.

Rules: writes are unbuffered, a short write is continued, a failed sync is final (the caller takes
the directory offline and never retries), and files are read, never mapped: then an unreadable
sector or a truncated file is an error of a call and not a signal that ends the process.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from moldau.storage.disk import cached_views, disk_calls
from moldau.storage.disk.disk_calls import sync_directory, sync_file, write_buffers
from moldau.storage.disk.failures import (
    OUT_OF_DESCRIPTORS,
    READ_ONLY,
    SyncFailedError,
    refused_if_full,
)
from moldau.types import Buffer

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
# Linux takes at most 1024 buffers in one writev.
_IOV_MAX = 1024


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> Path: ...
    @property
    def reports_cached(self) -> bool:
        """Whether the system can report which bytes of the file are in the page cache."""

    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes:
        """Shorter than `length` only where the file ends."""

    def read_into(self, target: memoryview, offset: int, *, wait: bool = True) -> int:
        """Fill `target` and return the number of bytes read, fewer only where the file ends.
        Without `wait` it raises BlockingIOError if the bytes are not in the page cache.
        """

    def cached_view(self, offset: int, size: int) -> memoryview | None:
        """Bytes that the kernel can send from the page cache; this process must not read them. None
        if they are not all cached.
        """

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end. After an error `size` shows how much was written: truncate
        it.
        """

    def write_at(self, offset: int, content: Buffer) -> None: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """Returns once content and size are on the disk. An error is final."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The operations that the log needs from a disk. Every error is an OSError."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file if there is none."""

    def exists(self, path: Path) -> bool: ...
    def list_directory(self, path: Path) -> list[str]:
        """Names, sorted."""

    def make_directory(self, path: Path) -> None:
        """Creates missing parents too; an existing directory is fine."""

    def is_directory(self, path: Path) -> bool: ...
    def rename(self, source: Path, target: Path) -> None:
        """Replaces the target."""

    def remove(self, path: Path) -> None:
        """A missing file is fine."""

    def remove_tree(self, path: Path) -> None:
        """A missing path is fine. Of a symbolic link only the link is removed."""

    def sync_directory(self, path: Path) -> None:
        """On return, creations, renames and removals inside `path` are durable."""

    def hold_directory(self, path: Path) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Yields a function that syncs the directory without needing another descriptor: for
        changes in several steps that must not stop half way.
        """

    def lock(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """Hold an exclusive lock on a file, or raise BlockingIOError if this or another process
        holds it.
        """

    def modified_ms(self, path: Path) -> int: ...
    def file_size(self, path: Path) -> int: ...
    def free_bytes(self, path: Path) -> int: ...
    def total_bytes(self, path: Path) -> int: ...


def read_whole(filesystem: FileSystem, path: Path) -> bytes:
    file = filesystem.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def sync_path(filesystem: FileSystem, path: Path) -> None:
    """For a file whose writer may have closed it already."""
    file = filesystem.open(path)
    try:
        file.sync()
    finally:
        file.close()


def _write_whole(filesystem: FileSystem, path: Path, content: Buffer) -> None:
    file = filesystem.open(path, create=True)
    try:
        file.append([content])
        file.sync()
    finally:
        file.close()


def write_atomically(filesystem: FileSystem, path: Path, content: Buffer) -> None:
    """Readers see the old content or the new, never a mixture, even after a crash. DiskFullError
    leaves the old content.
    """
    temporary = path.with_name(path.name + ".tmp")
    with refused_if_full(path):
        filesystem.remove(temporary)
        try:
            _write_whole(filesystem, temporary, content)
        except OSError:
            with contextlib.suppress(OSError):
                filesystem.remove(temporary)
            raise
    filesystem.rename(temporary, path)
    filesystem.sync_directory(path.parent)


@contextlib.contextmanager
def _syncing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror, str(path)) from error


_NO_SUCH_FLAG = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
DEVICES_THAT_WAIT: set[int] = set()
"""Their file systems cannot read from the cache alone: every read may block."""


def _would_wait(path: Path) -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, "not in the page cache", str(path))


class DiskFile:
    """A real file."""

    __slots__ = ("_device", "_fd", "_is_viewed", "_size", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        status = os.fstat(fd)
        self._size = status.st_size
        self._device = status.st_dev
        self._is_viewed = False

    @property
    def reports_cached(self) -> bool:
        return bool(disk_calls.CACHED_ONLY) and self._device not in DEVICES_THAT_WAIT

    def size(self) -> int:
        return self._size

    def fileno(self) -> int:
        """The descriptor, which stays the file's. -1 when it is closed."""
        return self._fd

    def read(self, offset: int, length: int) -> bytes:
        content = os.pread(self._fd, length, offset)
        if len(content) == length or not content:
            return content
        parts = [content]
        got = len(content)
        while got < length and (content := os.pread(self._fd, length - got, offset + got)):
            parts.append(content)
            got += len(content)
        return b"".join(parts)

    def read_into(self, target: memoryview, offset: int, *, wait: bool = True) -> int:
        flags = 0
        if not wait:
            flags = disk_calls.CACHED_ONLY
            if not self.reports_cached:
                raise _would_wait(self.path)
        size, got = len(target), 0
        while got < size:
            try:
                more = disk_calls.read_into(
                    self._fd, [target[got:] if got else target], offset + got, flags
                )
            except OSError as error:
                if not wait and error.errno in _NO_SUCH_FLAG:
                    DEVICES_THAT_WAIT.add(self._device)
                    raise _would_wait(self.path) from error
                raise
            if more == 0:
                break
            got += more
        return got

    def cached_view(self, offset: int, size: int) -> memoryview | None:
        if not self.reports_cached:
            return None
        # Set first: a map that stayed behind could later serve another file with the same
        # descriptor.
        self._is_viewed = True
        view = cached_views.cached_view(self._fd, offset, size)
        return None if view is None else memoryview(view)

    def append(self, buffers: Sequence[Buffer]) -> None:
        try:
            for start in range(0, len(buffers), _IOV_MAX):
                group = buffers[start : start + _IOV_MAX]
                size = sum(map(len, group)) if len(group) > 1 else len(group[0])
                written = write_buffers(self._fd, group, self._size)
                self._size += written
                if written < size:
                    self.write_at(self._size, memoryview(b"".join(group))[written:])
        except OSError:
            # A failed write may still have moved the end.
            with contextlib.suppress(OSError):
                self._size = os.fstat(self._fd).st_size
            raise

    def write_at(self, offset: int, content: Buffer) -> None:
        rest = memoryview(content)
        while rest:
            written = os.pwrite(self._fd, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "a write made no progress", str(self.path))
            offset += written
            rest = rest[written:]
            self._size = max(self._size, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        with _syncing(self.path):
            sync_file(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            if self._is_viewed:
                cached_views.forget(self._fd)
            os.close(self._fd)
            self._fd = -1


# POSIX record locks belong to the process: a second open gets the lock too, and its close would
# drop the first one's. So the process remembers the files that it has locked (device, inode).
_locked_here: set[tuple[int, int]] = set()
# Reentrant: the garbage collector may close a forgotten lock while this thread takes another.
_locked_here_mutex = threading.RLock()


def _take_lock(path: Path) -> tuple[int, tuple[int, int]]:
    with _locked_here_mutex:
        if path.exists() and _identity(path.stat()) in _locked_here:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", str(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            # The same kind of lock as Java's FileChannel.tryLock: Apache Kafka and Moldau must
            # exclude each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                raise BlockingIOError(
                    errno.EAGAIN, "locked by another process", str(path)
                ) from error
            raise
        identity = _identity(os.fstat(fd))
        _locked_here.add(identity)
        return fd, identity


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class _Spare:
    """A spare descriptor for syncing the directory when all others are in use: the change made just
    before must not be left half done. It is shared by the process, like the descriptor limit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1

    def open(self, path: Path, flags: int) -> int:
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            return os.open(path, flags)

    def take(self) -> None:
        with self._lock:
            if self._fd < 0:
                with contextlib.suppress(OSError):
                    self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


_spare = _Spare()


class DiskFileSystem:
    """The real disk."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return DiskFile(path, os.open(path, flags, _FILE_MODE))
        except OSError as error:
            if create or error.errno not in READ_ONLY:
                raise
            # Existing content can still be read.
            return DiskFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - names only; a Path for each costs 10x

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        with self.hold_directory(path) as sync:
            sync()

    @contextlib.contextmanager
    def hold_directory(self, path: Path) -> Iterator[Callable[[], None]]:
        fd = _spare.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        def sync() -> None:
            with _syncing(path):
                sync_directory(fd)

        try:
            yield sync
        finally:
            os.close(fd)
            _spare.take()

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        fd, identity = _take_lock(path)
        try:
            yield
        finally:
            with _locked_here_mutex:
                _locked_here.discard(identity)
                os.close(fd)

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).total
