"""A node's process is never stopped by a collection that traverses all live objects."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from moldau.broker.node.garbage_collection import CHECK_EVERY_MS, GarbageCollection
from moldau.net.clock import ShiftedClock

FULL = 2
SURVIVORS = 40_000


class Node:
    """Refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def look(clock: ShiftedClock, times: int = 1) -> None:
    for _ in range(times):
        clock.advance(CHECK_EVERY_MS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def full_collections() -> int:
    return int(gc.get_stats()[FULL]["collections"])


@pytest.mark.usefixtures("thresholds")
async def test_no_collection_traverses_long_lived_objects() -> None:
    clock = ShiftedClock()
    collection = GarbageCollection(clock)
    collection.start()
    try:
        before = full_collections()
        alive = [[number] for number in range(SURVIVORS)]
        assert full_collections() == before
        assert any(each is alive[0] for each in gc.get_objects())
        await look(clock)
        assert not any(each is alive[0] for each in gc.get_objects())
    finally:
        collection.stop()


@pytest.mark.usefixtures("thresholds")
async def test_cycles_are_freed_if_they_are_garbage_when_they_are_examined() -> None:
    clock = ShiftedClock()
    collection = GarbageCollection(clock)
    collection.start()
    try:
        kept = [Node() for _ in range(SURVIVORS)]
        watched = weakref.ref(kept[0])
        kept.clear()
        await look(clock)
        assert watched() is None
    finally:
        collection.stop()


@pytest.mark.usefixtures("thresholds")
async def test_cycles_that_became_garbage_later_are_freed_when_there_are_many() -> None:
    clock = ShiftedClock()
    collection = GarbageCollection(clock, frozen_min=1_000)
    collection.start()
    try:
        kept = [Node() for _ in range(SURVIVORS)]
        watched = weakref.ref(kept[0])
        await look(clock)
        kept.clear()
        await look(clock)
        assert watched() is not None
        await look(clock, times=60 * 5)
        assert watched() is None
        assert collection.full_collections == 1
        await look(clock, times=60 * 6)
        assert collection.full_collections == 1
    finally:
        collection.stop()
