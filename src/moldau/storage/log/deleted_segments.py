"""The segments of a log that are out of use, while their files are still on the disk: they are
removed file.delete.delay.ms later, since reads may be under way.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.segment.segment import Segment


class DeletedSegment(NamedTuple):
    due_ms: int
    segment: Segment
    snapshot: Path | None
    """The producer snapshot at its start."""


class DeletedSegments:
    def __init__(self) -> None:
        self._waiting: deque[DeletedSegment] = deque()

    def add(self, deleted: Iterable[DeletedSegment]) -> None:
        self._waiting += deleted

    def removing(
        self, filesystem: FileSystem, now_ms: int, count_max: int | None = None
    ) -> Steps[int]:
        """Removes the files of those that are due, and returns the number of segments. A file
        system may take long to free the space of a large file.
        """
        paths: list[Path] = []
        removed = 0
        for due_ms, segment, snapshot in islice(self._waiting, count_max):
            if due_ms > now_ms:
                break
            segment.abandon()
            paths += segment.paths()
            if snapshot is not None:
                paths.append(snapshot)
            removed += 1
        if removed:
            yield lambda: _remove_all(filesystem, paths)
            for _ in range(removed):
                self._waiting.popleft()
        return removed

    def abandon(self) -> None:
        for each in self._waiting:
            each.segment.abandon()

    def moved_to(self, path: Path) -> None:
        """The log's directory was renamed."""
        for each in self._waiting:
            each.segment.moved_to(path)
        self._waiting = deque(
            each._replace(snapshot=each.snapshot and path / each.snapshot.name)
            for each in self._waiting
        )


def _remove_all(filesystem: FileSystem, paths: Iterable[Path]) -> None:
    for path in paths:
        filesystem.remove(path)
