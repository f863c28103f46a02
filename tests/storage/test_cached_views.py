"""Views of files that are sent and not read: of what is in the page cache alone, and for as long as
somebody holds them.
"""

import os
import sys
from pathlib import Path

import pytest

from moldau.storage.cached_views import SIZE_MIN, cached_view, view_behind
from moldau.storage.filesystem import DiskFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is cached")

CONTENT = os.urandom(4 * SIZE_MIN)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("position", [0, 1, 4096, 70_001])
@pytest.mark.parametrize("size", [SIZE_MIN, SIZE_MIN + 1, 3 * SIZE_MIN])
def test_a_view_shows_the_file(path: Path, position: int, size: int) -> None:
    view = DiskFileSystem().open(path).cached_view(position, size)
    assert view is not None
    assert bytes(view) == CONTENT[position : position + size]
    assert view.readonly
    behind = view_behind(view)
    assert behind is not None
    assert behind.read_from(10) == CONTENT[position + 10 : position + size]


def test_what_is_small_is_read(path: Path) -> None:
    assert DiskFileSystem().open(path).cached_view(0, SIZE_MIN - 1) is None


def test_what_the_file_does_not_hold_is_no_view(path: Path) -> None:
    assert DiskFileSystem().open(path).cached_view(3 * SIZE_MIN + 1, SIZE_MIN) is None


def test_what_is_not_cached_is_no_view(path: Path) -> None:
    file = DiskFileSystem().open(path)
    file.sync()
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        file.read_into(memoryview(bytearray(1)), 2 * SIZE_MIN, wait=False)
    except BlockingIOError:
        pass
    else:
        pytest.skip("this file system keeps its files in memory")
    assert file.cached_view(0, len(CONTENT)) is None
    file.read(0, len(CONTENT))
    assert file.cached_view(0, len(CONTENT)) is not None


def test_a_view_outlives_the_file_that_it_was_made_from(path: Path) -> None:
    file = DiskFileSystem().open(path)
    view = file.cached_view(0, SIZE_MIN)
    file.close()
    path.unlink()
    assert view is not None
    behind = view_behind(view)
    assert behind is not None
    assert behind.read_from(0) == bytes(view) == CONTENT[:SIZE_MIN]


def test_the_rest_of_a_file_that_somebody_has_cut_is_not_made_up(path: Path) -> None:
    view = DiskFileSystem().open(path).cached_view(0, 2 * SIZE_MIN)
    os.truncate(path, SIZE_MIN)
    assert view is not None
    behind = view_behind(view)
    assert behind is not None
    with pytest.raises(EOFError):
        behind.read_from(100)


def test_a_view_takes_a_descriptor_only_while_it_is_held(path: Path) -> None:
    file = DiskFileSystem().open(path)
    before = descriptors()
    views = [file.cached_view(0, SIZE_MIN) for _ in range(20)]
    assert descriptors() > before
    views.clear()
    assert descriptors() == before


@pytest.mark.parametrize("other", [b"bytes", memoryview(CONTENT), bytearray(SIZE_MIN)])
def test_other_buffers_are_no_views_of_files(other: bytes | memoryview | bytearray) -> None:
    assert view_behind(other) is None


def test_a_part_of_a_view_is_not_the_view(tmp_path: Path) -> None:
    """Only the whole can be continued by reading."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDONLY)
    view = cached_view(descriptor, 0, SIZE_MIN)
    os.close(descriptor)
    assert view is not None
    assert view_behind(view[1:]) is None
