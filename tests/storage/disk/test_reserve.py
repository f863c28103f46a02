"""Space reserved for a full disk: it is taken up to its size and released at once."""

import errno
from pathlib import Path

import pytest

from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.disk.reserve import RESERVE_FILE, Reserve
from moldau.testing.simulated_disk import SimulatedDisk


@pytest.mark.parametrize("size", [1, 100_000, 1_000_000])
def test_a_reserve_is_filled_up_to_its_size(tmp_path: Path, size: int) -> None:
    reserve = Reserve(DiskFileSystem(), tmp_path)
    path = tmp_path / RESERVE_FILE
    reserve.take(size)
    assert path.stat().st_size == size
    reserve.take(size + 300_000)
    assert path.stat().st_size == size + 300_000
    reserve.take(size)
    assert path.stat().st_size == size + 300_000


def test_releasing_a_reserve_returns_whether_there_was_one(tmp_path: Path) -> None:
    reserve = Reserve(DiskFileSystem(), tmp_path)
    assert not reserve.release()
    reserve.take(1000)
    assert reserve.release()
    assert not reserve.release()
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_a_reserve_takes_the_space_that_is_left() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/data"))
    reserve = Reserve(disk, Path("/data"))
    disk.short_write_at(disk.effects + 2, 500, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        reserve.take(1000)
    assert disk.file_size(Path("/data") / RESERVE_FILE) == 500
    assert reserve.release()
