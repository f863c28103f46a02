"""Other reads from the disk after a start: searches by time, retention, lost indexes, appends. None
of them blocks the event loop.
"""

import pytest
from broker.data_node import batch
from broker.records.test_cold_reads import SlowDisk, cold_node, read_all
from broker.records.test_fetch import fill
from broker.records.test_offsets import list_offset
from support.waiting import until

from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.storage.compaction.plan import assess, make_plan


def check_threads(disk: SlowDisk) -> None:
    """Something read the disk, in another thread than the event loop's."""
    assert disk.threads
    assert {name.rpartition("_")[0] for name in disk.threads} == {"moldau-read"}


@pytest.mark.parametrize("timestamp", [0, ListOffsetsTimestamp.MAX_TIMESTAMP])
async def test_offsets_are_searched_by_time_in_threads(timestamp: int) -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        found = await list_offset(node, timestamp)
        disk.cool_down()
        warm = await list_offset(node, timestamp)
        assert (found.error_code, found.offset) == (0, warm.offset)
        assert found.timestamp == warm.timestamp
        check_threads(disk)


async def test_retention_learns_the_age_of_segments_in_threads() -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        log = node.replicas.lookup("orders", 0).log
        count = len(log.segments)
        # By now the background work of the start is in progress.
        await fill(node, b"new", index=1)
        # The default retention of a week is over.
        node.clock.advance(8 * 24 * 3_600_000)
        await until(lambda: log.log_start_offset == 40)
        assert len(log.segments) < count
        check_threads(disk)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
async def test_a_broken_index_is_rebuilt_in_a_thread(kind: str) -> None:
    async with cold_node("orders-0") as (node, disk):
        disk.answers.set()
        log = node.replicas.lookup("orders", 0).log
        path = log.segments[1].path(kind)
        disk.plant(path, b"\x7f" * len(disk.files()[str(path)]))
        assert await read_all(node) == [b"%d" % number * 50 for number in range(40)]
        assert (await list_offset(node, ListOffsetsTimestamp.MAX_TIMESTAMP)).error_code == 0
        assert disk.files()[str(path)] != b"\x7f" * len(disk.files()[str(path)])
        check_threads(disk)


async def test_the_first_append_after_a_start_reads_nothing() -> None:
    async with cold_node("orders-0") as (node, disk):
        partition = node.replicas.lookup("orders", 0)
        appended = partition.append(batch(b"new"))
        await partition.wait_committed(appended.last_offset)
        assert not disk.threads


async def test_a_compaction_is_planned_without_the_disk() -> None:
    async with cold_node("orders-0") as (node, disk):
        log = node.replicas.lookup("orders", 0).log
        plan = make_plan(assess(log, None, node.clock.wall_ms()), node.clock.wall_ms())
        assert len(plan.sources) == len(log.segments) - 1
        assert not disk.threads
