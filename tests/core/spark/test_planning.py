"""From offsets to tasks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moldau.core.spark.planning import OffsetRange, limited, split
from moldau.types import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(6)]
OFFSETS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 5_000), min_size=1)


@given(OFFSETS, OFFSETS, st.integers(1, 4_000))
def test_a_limited_batch_advances_every_partition_with_a_backlog(
    start: dict[TopicPartition, int], more: dict[TopicPartition, int], rows_max: int
) -> None:
    latest = {one: start.get(one, 0) + more.get(one, 0) for one in start.keys() | more.keys()}
    ends = limited(start, latest, rows_max)
    steps = {one: ends[one] - start.get(one, 0) for one in latest}
    assert ends.keys() == latest.keys()
    assert all(0 <= step <= latest[one] - start.get(one, 0) for one, step in steps.items())
    assert all(steps[one] > 0 for one in latest if latest[one] > start.get(one, 0))
    # One of each at least, so small shares add up to a little more.
    assert sum(steps.values()) <= rows_max + len(latest)
    backlog = sum(latest[one] - start.get(one, 0) for one in latest)
    assert backlog > rows_max or ends == latest


RANGES = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 100), st.integers(0, 3_000)).map(
        lambda parts: OffsetRange(parts[0], parts[1], parts[1] + parts[2])
    ),
    max_size=6,
    unique_by=lambda one: one.partition,
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_cut_ranges_hold_every_offset_once(
    ranges: list[OffsetRange], tasks_min: int | None, rows_max: int | None
) -> None:
    parts = split(ranges, tasks_min, rows_max)
    assert all(part.size > 0 for part in parts)
    assert sum(part.size for part in parts) == sum(one.size for one in ranges)
    for one in ranges:
        mine = sorted(part[1:3] for part in parts if part.partition == one.partition)
        # Without gaps, from the beginning to the end.
        assert all(left[1] == right[0] for left, right in pairwise(mine))
        if mine:
            assert (mine[0][0], mine[-1][1]) == (one.start, one.stop)
    assert rows_max is None or all(part.size <= rows_max for part in parts)


def test_more_tasks_than_partitions() -> None:
    big, small = OffsetRange(PARTITIONS[0], 0, 900), OffsetRange(PARTITIONS[1], 0, 100)
    parts = split([big, small], tasks_min=10)
    assert [part.partition.partition for part in parts].count(0) == 9
    assert len(parts) == 10
