"""The segments of one log in offset order. There is always an active one, the last."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from moldau.storage.segment.files import OnDamage
from moldau.storage.segment.segment import Segment
from moldau.types import Offset


def link(segments: Sequence[Segment]) -> None:
    """In offset order: each hears where the next one begins."""
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

    def __getitem__(self, place: int) -> Segment:
        return self._segments[place]

    def watch(self, on_damage: OnDamage) -> None:
        """Call it with damage that is found from now on."""
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

    def floor_place(self, offset: Offset) -> int:
        """The place of the last segment that begins at or before `offset`; -1 if none does."""
        return bisect_right(self._bases, offset) - 1

    def end_of(self, place: int, log_end_offset: Offset) -> int:
        """An offset that no batch of the segment reaches."""
        return self._bases[place + 1] if place + 1 < len(self._bases) else log_end_offset

    def overlapping(self, start_offset: Offset, end_offset: Offset) -> list[Segment]:
        """Those that may hold offsets in [start_offset, end_offset)."""
        first = max(self.floor_place(start_offset), 0)
        return self._segments[first : bisect_left(self._bases, end_offset)]

    def add(self, segment: Segment) -> None:
        place = bisect_left(self._bases, segment.base_offset)
        self._segments.insert(place, segment)
        self._bases.insert(place, segment.base_offset)
        segment.on_damage = self._on_damage
        self._link_around(place)

    def remove(self, segment: Segment) -> None:
        place = self._segments.index(segment)
        del self._segments[place], self._bases[place]
        segment.is_retired = True
        self._link_around(place)

    def _link_around(self, place: int) -> None:
        for before in range(max(place - 1, 0), min(place + 1, len(self._segments))):
            following = self._bases[before + 1] if before + 1 < len(self._bases) else None
            self._segments[before].followed_by(following)
