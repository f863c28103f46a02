"""The segments of one log in offset order. The last one is the active segment; there
always is one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from moldau.storage.segment.files import OnDamage
from moldau.storage.segment.segment import Segment
from moldau.types import Offset


def link(segments: Sequence[Segment]) -> None:
    """Sets for each segment, in offset order, where the next one begins."""
    for segment, following in pairwise(segments):
        segment.followed_by(following.base_offset)
    if segments:
        segments[-1].followed_by(None)


class Segments:
    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._on_damage: OnDamage | None = None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    def watch(self, on_damage: OnDamage) -> None:
        """`on_damage` is called for damage found from now on."""
        self._on_damage = on_damage
        for segment in self._segments:
            segment.on_damage = on_damage

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor_index(self, offset: Offset) -> int:
        """The index of the last segment that begins at or before `offset`; -1 if none does."""
        return bisect_right(self._bases, offset) - 1

    def end_of(self, index: int, log_end_offset: Offset) -> Offset:
        """An offset that no batch of the segment reaches."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def overlapping(self, start_offset: Offset, end_offset: Offset) -> list[Segment]:
        """The segments that may contain offsets in [start_offset, end_offset)."""
        first = max(self.floor_index(start_offset), 0)
        return self._segments[first : bisect_left(self._bases, end_offset)]

    def add(self, segment: Segment) -> None:
        index = bisect_left(self._bases, segment.base_offset)
        self._segments.insert(index, segment)
        self._bases.insert(index, segment.base_offset)
        segment.on_damage = self._on_damage
        self._link_around(index)

    def remove(self, segment: Segment) -> None:
        index = self._segments.index(segment)
        del self._segments[index], self._bases[index]
        segment.is_retired = True
        self._link_around(index)

    def _link_around(self, index: int) -> None:
        for before in range(max(index - 1, 0), min(index + 1, len(self._segments))):
            following = self._bases[before + 1] if before + 1 < len(self._bases) else None
            self._segments[before].followed_by(following)
