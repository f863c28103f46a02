"""Views of files that are sent but not read: they cover cached bytes only, and live as long as they
are referenced.
"""

import os
from pathlib import Path

import pytest

from moldau.compiled import USE_COMPILED
from moldau.storage.disk import _file_views_twin, disk_calls
from moldau.storage.disk._file_views_twin import MAP_BYTES, MAPS_KEPT, VIEW_BYTES_MAX
from moldau.storage.disk.cached_views import SIZE_MIN, cached_view, forget, view_of
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem

pytestmark = [
    pytest.mark.skipif(
        not disk_calls.CACHED_ONLY, reason="only Linux reports which bytes are cached"
    ),
    pytest.mark.skipif(not USE_COMPILED, reason="views are compiled"),
]

CONTENT = os.urandom(4 * SIZE_MIN)
MAP_STEP = MAP_BYTES - VIEW_BYTES_MAX


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def viewed(file: DiskFile, position: int, size: int) -> memoryview | None:
    """The view at the second request: the first request is always read."""
    file.cached_view(position, size)
    return file.cached_view(position, size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("position", [0, 1, 4096, 70_001])
@pytest.mark.parametrize("size", [SIZE_MIN, SIZE_MIN + 1, 3 * SIZE_MIN])
def test_a_view_shows_the_file(path: Path, position: int, size: int) -> None:
    view = viewed(DiskFileSystem().open(path), position, size)
    assert view is not None
    assert bytes(view) == CONTENT[position : position + size]
    assert view.readonly
    viewed_file = view_of(view)
    assert viewed_file is not None
    assert viewed_file.read_from(10) == CONTENT[position + 10 : position + size]


def test_bytes_requested_only_once_are_read(path: Path) -> None:
    file = DiskFileSystem().open(path)
    for position in range(0, len(CONTENT), SIZE_MIN):
        assert file.cached_view(position, SIZE_MIN) is None
    assert maps_of(path) == 0
    # Another reader, whose requests begin elsewhere.
    assert file.cached_view(SIZE_MIN // 2, SIZE_MIN) is not None
    assert maps_of(path) == 1
    file.close()


@pytest.mark.parametrize(
    ("position", "size"),
    [
        (MAP_STEP - 1, VIEW_BYTES_MAX),
        (MAP_STEP, VIEW_BYTES_MAX),
        (MAP_STEP - 5, 2 * VIEW_BYTES_MAX),
        (100, MAP_BYTES + 200),
    ],
    ids=["across two maps", "at the start of one", "large", "larger than a map"],
)
def test_a_view_may_lie_anywhere_in_a_large_file(tmp_path: Path, position: int, size: int) -> None:
    content = os.urandom(2 * MAP_BYTES)
    path = tmp_path / "large"
    path.write_bytes(content)
    file = DiskFileSystem().open(path)
    view = viewed(file, position, size)
    assert view is not None
    assert view == content[position : position + size]
    file.close()


def test_the_number_of_kept_maps_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as opened:
        opened.truncate(2 * MAPS_KEPT * MAP_STEP)
    file = DiskFileSystem().open(path)
    for number in range(2 * MAPS_KEPT):
        # A hole is in the page cache once it has been read.
        file.read(number * MAP_STEP, SIZE_MIN)
        assert viewed(file, number * MAP_STEP, SIZE_MIN) is not None
    assert maps_of(path) == MAPS_KEPT
    file.close()
    assert maps_of(path) == 0


def test_a_file_that_is_closed_and_deleted_frees_its_disk_space(path: Path) -> None:
    file = DiskFileSystem().open(path)
    before = descriptors()
    assert viewed(file, 0, SIZE_MIN) is not None
    assert maps_of(path) == 1
    file.close()
    assert maps_of(path) == 0
    assert descriptors() == before - 1


def test_a_file_never_gets_the_map_of_an_earlier_file_with_the_same_descriptor(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(CONTENT)
    second.write_bytes(CONTENT[::-1])
    file = DiskFileSystem().open(first)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    viewed(file, 0, SIZE_MIN)
    number = file.fileno()
    file.close()
    assert maps_of(first) == 0
    first.read_bytes()
    other = DiskFileSystem().open(second)
    assert other.fileno() == number
    view = viewed(other, 0, SIZE_MIN)
    assert view is not None
    assert view == CONTENT[::-1][:SIZE_MIN]


def test_bytes_appended_after_a_view_are_in_the_next_view(path: Path) -> None:
    file = DiskFileSystem().open(path)
    assert viewed(file, 0, len(CONTENT)) is not None
    file.append([CONTENT[::-1]])
    view = viewed(file, len(CONTENT), len(CONTENT))
    assert view is not None
    assert view == CONTENT[::-1]
    file.truncate(SIZE_MIN)
    assert viewed(file, 1, SIZE_MIN) is None
    file.append([CONTENT])
    view = viewed(file, SIZE_MIN, len(CONTENT))
    assert view is not None
    assert view == CONTENT


def test_without_a_compiler_there_are_no_views(path: Path) -> None:
    with path.open("rb") as opened:
        assert _file_views_twin.cached_view(opened.fileno(), 0, SIZE_MIN) is None
        _file_views_twin.forget(opened.fileno())


def test_there_is_no_view_beyond_the_end_of_the_file(path: Path) -> None:
    assert viewed(DiskFileSystem().open(path), 3 * SIZE_MIN + 1, SIZE_MIN) is None


def test_there_is_no_view_of_uncached_bytes(path: Path) -> None:
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
    assert viewed(file, 0, len(CONTENT)) is None
    file.read(0, len(CONTENT))
    assert viewed(file, 0, len(CONTENT)) is not None


def test_a_view_outlives_the_file_that_it_was_made_from(path: Path) -> None:
    file = DiskFileSystem().open(path)
    view = viewed(file, 0, SIZE_MIN)
    file.close()
    path.unlink()
    assert view is not None
    viewed_file = view_of(view)
    assert viewed_file is not None
    assert viewed_file.read_from(0) == bytes(view) == CONTENT[:SIZE_MIN]


def test_reading_the_rest_of_a_truncated_file_raises(path: Path) -> None:
    view = viewed(DiskFileSystem().open(path), 0, 2 * SIZE_MIN)
    os.truncate(path, SIZE_MIN)
    assert view is not None
    viewed_file = view_of(view)
    assert viewed_file is not None
    with pytest.raises(EOFError):
        viewed_file.read_from(100)


def test_many_views_share_a_map_and_a_descriptor(path: Path) -> None:
    file = DiskFileSystem().open(path)
    before = descriptors()
    views = [viewed(file, number, SIZE_MIN) for number in range(20)]
    assert descriptors() == before + 1
    file.close()
    assert descriptors() == before, "the views have none of their own"
    views.clear()
    assert descriptors() == before - 1


@pytest.mark.parametrize("other", [b"bytes", memoryview(CONTENT), bytearray(SIZE_MIN)])
def test_other_buffers_are_not_views_of_files(other: bytes | memoryview | bytearray) -> None:
    assert view_of(other) is None


def test_a_part_of_a_view_is_not_the_view(tmp_path: Path) -> None:
    """Only a complete view can be continued by reading."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDONLY)
    view = [cached_view(descriptor, 0, SIZE_MIN) for _ in range(2)][1]
    forget(descriptor)
    os.close(descriptor)
    assert view is not None
    assert view_of(memoryview(view)) is view
    assert view_of(memoryview(view)[1:]) is None
