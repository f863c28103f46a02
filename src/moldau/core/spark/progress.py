"""Progress of a running query: changes of its topics since the last batch, and the end of the next
one.
"""

from typing import NamedTuple

from moldau.core.spark.offset_json import Offsets, QueryOffsets
from moldau.core.spark.planning import OffsetRange, backlog_of, limited
from moldau.types import TopicPartition, parse_uuid


class Limits(NamedTuple):
    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = 0


class Loss(NamedTuple):
    partition: TopicPartition
    start: int
    stop: int
    reason: str


def losses(position: QueryOffsets, latest: QueryOffsets) -> list[Loss]:
    """Records that were deleted before the query read them."""
    lost = []
    for partition, offset in sorted(position.offsets.items()):
        end = latest.offsets.get(partition)
        if end is None:
            lost.append(Loss(partition, offset, offset, "it is deleted"))
        elif is_recreated(partition.topic, position, latest):
            lost.append(Loss(partition, offset, end, "its topic was deleted and created again"))
        elif end < offset:
            lost.append(Loss(partition, offset, end, f"the log ends at {end} now"))
    return lost


def is_recreated(topic: str, before: QueryOffsets, after: QueryOffsets) -> bool:
    """Whether both have ids for the name, and they differ."""
    known = before.topic_ids.get(topic)
    return known is not None and after.topic_ids.get(topic, known) != known


def starts_within(position: QueryOffsets, latest: QueryOffsets) -> Offsets:
    """The start of each partition. New ones, and those of topics that were created again, start at
    their first record.
    """
    return {
        partition: 0
        if is_recreated(partition.topic, position, latest)
        else position.offsets.get(partition, 0)
        for partition in latest.offsets
    }


def next_end(
    position: QueryOffsets, latest: QueryOffsets, limits: Limits, waited_ms: float
) -> QueryOffsets | None:
    """The end of the next batch; None to wait for more records."""
    starts = starts_within(position, latest)
    backlog = backlog_of(starts, latest.offsets)
    is_same = backlog == 0 and position.offsets == latest.offsets
    if is_same and not any(is_recreated(name, position, latest) for name in latest.topic_ids):
        return None
    if (limits.rows_min or 0) > backlog and waited_ms < limits.delay_ms_max:
        return None
    ends = latest.offsets
    if limits.rows_max is not None:
        ends = limited(starts, ends, limits.rows_max)
    return QueryOffsets(dict(ends), latest.topic_ids)


def first_end(
    initial: QueryOffsets, latest: QueryOffsets, end: QueryOffsets | None
) -> QueryOffsets:
    """The end of a query's first batch. It runs at once, even if it is empty, because with it Spark
    stores where the query began.
    """
    end = latest if end is None else end
    return end._replace(began=starts_within(initial, end))


def ranges_between(start: QueryOffsets, end: QueryOffsets) -> tuple[list[OffsetRange], list[Loss]]:
    """The ranges of a batch. A start after the end is a loss: an earlier run stored the end."""
    if start == end:
        return [], []
    if end.began is not None:
        start = QueryOffsets(end.began, end.topic_ids)
    ranges, lost = [], []
    for partition, begin in starts_within(start, end).items():
        stop = end.offsets[partition]
        if begin > stop:
            lost.append(Loss(partition, begin, stop, _BACKWARDS))
        elif begin < stop:
            text = end.topic_ids.get(partition.topic)
            ranges.append(
                OffsetRange(partition, begin, stop, None if text is None else parse_uuid(text))
            )
    return ranges, lost


_BACKWARDS = (
    "the batch was planned by an earlier run that began elsewhere; "
    "start with explicit startingOffsets"
)
