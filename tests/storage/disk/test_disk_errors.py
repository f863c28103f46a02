"""System calls that do less than was requested, or fail: descriptors, locks, short reads."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from moldau.storage.disk import disk_calls
from moldau.storage.disk import filesystem as filesystem_module
from moldau.storage.disk.failures import (
    DiskFullError,
    NoDescriptorError,
    SyncFailedError,
    refusal,
    refused_if_full,
)
from moldau.storage.disk.filesystem import DiskFileSystem

Patch = pytest.MonkeyPatch
DISK = DiskFileSystem()


def os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def fail_first_opens(monkeypatch: Patch, code: int, count: int) -> list[Path]:
    """The next `count` calls of os.open fail; returns the paths of all calls."""
    real, seen = os.open, list[Path]()

    def failing(path: Any, *arguments: Any, **options: Any) -> int:
        seen.append(Path(path))
        if len(seen) <= count:
            raise os_error(code)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", failing)
    return seen


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: Patch) -> None:
    file = DISK.open(tmp_path / "f", create=True)
    file.append([b"0123456789"])
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    assert file.read(1, 8) == b"12345678"
    assert file.read(6, 100) == b"6789"
    assert file.read(10, 5) == b""
    file.close()


def test_a_write_without_progress_is_an_error(tmp_path: Path, monkeypatch: Patch) -> None:
    file = DISK.open(tmp_path / "f", create=True)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no progress") as raised:
        file.write_at(0, b"content")
    assert raised.value.errno == errno.EIO
    file.close()


def test_a_lock_that_the_system_cannot_give_is_not_taken_for_one_that_is_held(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    def refuse(_fd: int, _operation: int) -> None:
        raise os_error(errno.ENOLCK)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "lockf", refuse)
        with pytest.raises(OSError, match="No locks") as raised, DISK.lock(tmp_path / ".lock"):
            pass
        assert not isinstance(raised.value, BlockingIOError)
    with DISK.lock(tmp_path / ".lock"):
        pass


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_file_can_be_read(tmp_path: Path, monkeypatch: Patch, code: int) -> None:
    (tmp_path / "f").write_bytes(b"content")
    fail_first_opens(monkeypatch, code, 1)
    file = DISK.open(tmp_path / "f")
    assert file.read(0, 7) == b"content"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append([b"more"])
    file.close()


def test_a_missing_file_is_not_opened_for_reading_only(tmp_path: Path, monkeypatch: Patch) -> None:
    seen = fail_first_opens(monkeypatch, errno.ENOENT, 1)
    with pytest.raises(FileNotFoundError):
        DISK.open(tmp_path / "f")
    assert len(seen) == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_directory_is_synced_with_a_spare_descriptor(
    tmp_path: Path, monkeypatch: Patch, code: int
) -> None:
    seen = fail_first_opens(monkeypatch, code, 1)
    DISK.sync_directory(tmp_path)
    assert seen.count(tmp_path) == 2


def test_without_any_descriptor_a_directory_is_not_synced(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    fail_first_opens(monkeypatch, errno.EMFILE, 100)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            DISK.sync_directory(tmp_path)


def test_a_failed_sync_keeps_its_error_number(tmp_path: Path, monkeypatch: Patch) -> None:
    def fail(_fd: int) -> None:
        raise os_error(errno.ENOSPC)

    file = DISK.open(tmp_path / "f", create=True)
    monkeypatch.setattr(filesystem_module, "sync_file", fail)
    with pytest.raises(SyncFailedError) as raised:
        file.sync()
    assert raised.value.errno == errno.ENOSPC
    file.close()


def test_a_folder_is_synced_and_closed(tmp_path: Path, monkeypatch: Patch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(disk_calls, "sync_directory", synced.append)
    disk_calls.sync_folder(tmp_path)
    (fd,) = synced
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (errno.EMFILE, NoDescriptorError, "ulimit -n"),
        (errno.ENFILE, NoDescriptorError, "sysctl fs.file-max"),
        (errno.ENOSPC, DiskFullError, "No space left"),
    ],
)
def test_a_refusal_names_what_is_short(code: int, kind: type[DiskFullError], advice: str) -> None:
    error = refusal(Path("/logs"), os_error(code))
    assert type(error) is kind
    assert advice in error.detail


def test_other_errors_are_not_refusals() -> None:
    with pytest.raises(OSError, match="Input/output"), refused_if_full(Path("/logs")):
        raise os_error(errno.EIO)


def test_the_size_of_the_disk_is_not_less_than_its_free_space(tmp_path: Path) -> None:
    assert DISK.total_bytes(tmp_path) >= DISK.free_bytes(tmp_path) > 0
