"""The real disk, through the `FileSystem` protocol."""

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moldau.storage.disk import disk_calls
from moldau.storage.disk import filesystem as filesystem_module
from moldau.storage.disk.filesystem import (
    DiskFile,
    DiskFileSystem,
    FileSystem,
    read_whole,
    write_atomically,
)
from moldau.testing.simulated_disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    """A file system and an empty directory in it: both kinds have the same contract."""
    if request.param == "real":
        return DiskFileSystem(), tmp_path
    disk = SimulatedDisk()
    disk.make_directory(tmp_path)
    return disk, tmp_path


def test_appends_add_up_and_any_range_can_be_read(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "log", create=True)
    file.append([b"one", memoryview(b"two"), bytearray(b"three")])
    file.append([])
    file.append([b"four"])

    assert file.size() == 15
    assert file.read(3, 8) == b"twothree"
    assert file.read(11, 100) == b"four"
    assert file.read(100, 5) == b""
    target = memoryview(bytearray(9))
    assert (file.read_into(target[:5], 6), bytes(target[:5])) == (5, b"three")
    assert (file.read_into(target, 11), bytes(target[:4])) == (4, b"four")
    assert file.read_into(target, 50) == 0
    file.close()


def test_more_buffers_than_one_system_call_takes(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "log", create=True)
    buffers = [bytes([number % 251]) * 3 for number in range(3000)]
    file.append(buffers)
    assert file.read(0, file.size()) == b"".join(buffers)
    file.close()


def test_truncating_and_writing_inside(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "log", create=True)
    file.append([b"0123456789"])
    file.truncate(6)
    file.append([b"ab"])
    file.write_at(1, b"XY")
    file.write_at(7, b"long")
    file.sync()
    file.close()
    assert read_whole(filesystem, directory / "log") == b"0XY345along"


def test_names_can_be_listed_renamed_and_removed(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    filesystem.make_directory(directory / "b" / "c")
    filesystem.make_directory(directory / "b")
    filesystem.open(directory / "b" / "c" / "f", create=True).close()
    filesystem.open(directory / "a", create=True).close()

    assert filesystem.list_directory(directory) == ["a", "b"]
    assert filesystem.is_directory(directory / "b")
    assert not filesystem.is_directory(directory / "a")
    filesystem.rename(directory / "b", directory / "d")
    assert filesystem.exists(directory / "d" / "c" / "f")
    filesystem.remove_tree(directory / "d")
    filesystem.remove(directory / "a")
    filesystem.remove(directory / "a")
    assert filesystem.list_directory(directory) == []
    filesystem.sync_directory(directory)


def test_a_missing_path_is_an_os_error(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    missing = directory / "missing"
    for call in (
        lambda: filesystem.open(missing),
        lambda: filesystem.open(missing / "child", create=True),
        lambda: filesystem.list_directory(missing),
        lambda: filesystem.rename(missing, directory / "x"),
        lambda: filesystem.sync_directory(missing),
        lambda: filesystem.modified_ms(missing),
    ):
        with pytest.raises(FileNotFoundError):
            call()


def test_an_open_file_follows_its_rename(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "old", create=True)
    filesystem.rename(directory / "old", directory / "new")
    file.append([b"here"])
    file.close()
    assert read_whole(filesystem, directory / "new") == b"here"


def test_an_atomic_write_replaces_all_of_the_old_content(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    write_atomically(filesystem, directory / "f", b"a long first content")
    write_atomically(filesystem, directory / "f", b"short")
    assert read_whole(filesystem, directory / "f") == b"short"
    assert filesystem.list_directory(directory) == ["f"]


def test_a_lock_excludes_a_second_holder_until_it_is_released(
    place: tuple[FileSystem, Path],
) -> None:
    filesystem, directory = place
    with filesystem.lock(directory / ".lock"):
        for _ in range(2):
            with pytest.raises(BlockingIOError), filesystem.lock(directory / ".lock"):
                pass
        with filesystem.lock(directory / ".other"):
            pass
    with filesystem.lock(directory / ".lock"):
        pass


_TAKE_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def _another_process_gets(path: Path) -> bool:
    """Uses the same kind of lock as Java."""
    ran = subprocess.run(
        [sys.executable, "-c", _TAKE_LOCK, str(path)], check=False, capture_output=True
    )
    return ran.returncode == 0


def test_a_refused_second_holder_does_not_drop_the_lock_for_other_processes(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    path = tmp_path / ".lock"
    with filesystem.lock(path):
        with contextlib.suppress(BlockingIOError), filesystem.lock(path):
            pass
        assert not _another_process_gets(path)
    assert _another_process_gets(path)


def test_files_and_directories_are_private(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    filesystem.make_directory(tmp_path / "d")
    filesystem.open(tmp_path / "d" / "f", create=True).close()
    assert (tmp_path / "d").stat().st_mode & 0o077 == 0
    assert (tmp_path / "d" / "f").stat().st_mode & 0o077 == 0


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """The kernel refuses to let a file grow beyond this: real short writes."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, old_handler)


def test_after_a_failed_append_the_size_is_that_of_the_file(
    tmp_path: Path, file_size_limit: int
) -> None:
    file = DiskFileSystem().open(tmp_path / "log", create=True)
    file.append([b"x" * 9_000])
    with pytest.raises(OSError, match="File too large") as raised:
        file.append([b"a" * 700, b"b" * 700])

    assert raised.value.errno == errno.EFBIG
    assert file.size() == (tmp_path / "log").stat().st_size == file_size_limit
    file.truncate(9_000)
    file.append([b"fits"])
    assert file.read(8_999, 10) == b"xfits"
    file.close()


@pytest.mark.skipif(not disk_calls.CACHED_ONLY, reason="only Linux can read from the cache alone")
def test_uncached_bytes_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = DiskFileSystem().open(path, create=True)
    file.append([bytes(1 << 20)])
    file.sync()
    target = memoryview(bytearray(1 << 20))
    assert file.read_into(target, 0, wait=False) == 1 << 20

    with path.open("rb") as other:
        os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with pytest.raises(BlockingIOError):
        file.read_into(target, 0, wait=False)
    assert file.read_into(target, 0) == 1 << 20
    assert file.read_into(target, 0, wait=False) == 1 << 20
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_without_cache_only_reads_every_read_counts_as_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    read_into = disk_calls.read_into
    attempts: list[int] = []

    def refusing(fd: int, targets: Sequence[memoryview], offset: int, flags: int) -> int:
        attempts.append(flags)
        if flags:
            raise OSError(code, os.strerror(code))
        return read_into(fd, targets, offset, flags)

    monkeypatch.setattr(disk_calls, "CACHED_ONLY", 8)
    monkeypatch.setattr(disk_calls, "read_into", refusing)
    monkeypatch.setattr(filesystem_module, "DEVICES_THAT_WAIT", set())
    file = DiskFileSystem().open(tmp_path / "log", create=True)
    file.append([b"content"])
    target = memoryview(bytearray(7))
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            file.read_into(target, 0, wait=False)
    assert len(attempts) == 1, "it was tried once only"
    assert file.read_into(target, 0) == 7
    file.close()


def test_without_the_flag_files_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    monkeypatch.setattr(disk_calls, "CACHED_ONLY", 0)
    file = DiskFileSystem().open(tmp_path / "log", create=True)
    file.append([b"content"])
    target = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        file.read_into(target, 0, wait=False)
    assert (file.read_into(target, 3), bytes(target[:4])) == (4, b"tent")
    file.close()


def test_closing_twice_is_allowed_and_closes_once(tmp_path: Path) -> None:
    file = DiskFileSystem().open(tmp_path / "log", create=True)
    file.close()
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    file.close()
    os.fstat(other)
    os.close(other)
    assert isinstance(file, DiskFile)


def test_free_space_and_modification_time_are_those_of_the_disk(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    (tmp_path / "f").write_bytes(b"x")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_456_789))
    assert filesystem.modified_ms(tmp_path / "f") == 1_700_000_000_123
    assert filesystem.free_bytes(tmp_path) > 0


_HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_lock_of_another_process_is_respected(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError, match="another process"), DiskFileSystem().lock(path):
            pass
        other.communicate()
    with DiskFileSystem().lock(path):
        pass
