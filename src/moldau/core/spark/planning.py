"""From offsets to tasks: the part of a backlog that a micro-batch reads, and its ranges."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from moldau.core.spark.offset_json import Offsets
from moldau.types import TopicPartition


class OffsetRange(NamedTuple):
    """Records `start` to `stop - 1`; compaction may have removed some of them."""

    partition: TopicPartition
    start: int
    stop: int
    topic_id: bytes | None = None
    """None accepts any topic with the name."""

    @property
    def size(self) -> int:
        return self.stop - self.start


def limited(start: Mapping[TopicPartition, int], latest: Offsets, rows_max: int) -> Offsets:
    """The end of a batch of `rows_max` offsets. Each partition gets its share of the backlog, but
    at least one offset if it has any.
    """
    backlog = {each: max(end - start.get(each, 0), 0) for each, end in latest.items()}
    total = sum(backlog.values())
    if total <= rows_max:
        return dict(latest)
    ends: Offsets = {}
    for each, end in latest.items():
        share = rows_max * backlog[each] / total
        step = ceil(share) if share < 1 else floor(share)
        ends[each] = min(end, start.get(each, 0) + step) if backlog[each] else end
    return ends


def backlog_of(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    return sum(max(end - start.get(each, 0), 0) for each, end in latest.items())


def split(
    ranges: Iterable[OffsetRange],
    tasks_min: int | None = None,
    rows_max: int | None = None,
) -> list[OffsetRange]:
    """Splits without gaps or overlaps. `tasks_min` is only a hint: the sizes decide."""
    whole = [each for each in ranges if each.size > 0]
    if rows_max is not None:
        whole = [part for each in whole for part in _cut(each, ceil(each.size / rows_max))]
    if tasks_min is None or len(whole) >= tasks_min:
        return whole
    total = sum(each.size for each in whole)
    return [
        part
        for each in whole
        for part in _cut(each, max(floor(each.size / total * tasks_min + 0.5), 1))
    ]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    bounds = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=start, stop=stop) for start, stop in pairwise(bounds)]
