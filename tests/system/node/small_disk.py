"""A disk of a few megabytes for a test, to be filled, freed and made read-only. It is a tmpfs, so
only root can have one; without, tests that need it are skipped with the reason.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.missing import skip_except_in_ci

_BALLAST = "ballast"
_CHUNK_BYTES = 64 << 10


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Not a byte is left. Existing files stay."""
        with (self.path / _BALLAST).open("ab", buffering=0) as ballast:
            size = _CHUNK_BYTES
            while size:
                try:
                    ballast.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def make_room(self, size_bytes: int | None = None) -> None:
        """Frees `size_bytes`, or all that `fill` has taken."""
        ballast = self.path / _BALLAST
        if size_bytes is None:
            ballast.unlink()
        else:
            os.truncate(ballast, ballast.stat().st_size - size_bytes)

    def make_read_only(self) -> None:
        """Only while no process has a file open for writing."""
        _run("mount", "-o", "remount,ro", str(self.path))

    def make_writable(self) -> None:
        _run("mount", "-o", "remount,rw", str(self.path))


@contextmanager
def small_disk(path: Path, size: str = "4m") -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        skip_except_in_ci("a small disk is a tmpfs, and only root can mount one")
    path.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "moldau-test", str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        skip_except_in_ci(f"no tmpfs can be mounted here: {error}")
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: a hanging node must not prevent the clean-up.
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
