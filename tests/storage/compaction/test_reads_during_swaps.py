"""Threads open files by name, and compaction gives the name of an old segment to a new one while
the old one is still being read. No reader gets bytes of one for the other.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from storage.compaction_logs import CompactedLog, compacting

from moldau.protocol.records.batches import iterate_batches
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.filesystem import read_whole
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.read import ReadResult
from moldau.testing.simulated_disk import SimulatedDisk, SimulatedFile
from moldau.types import Offset

if TYPE_CHECKING:
    from moldau.storage.disk.disk_steps import Steps

RECORDS = 200
MAX_BYTES = 1 << 20
DELAY_MS = 1_000
SYNCS = 3
"""Syncs of a swap: the cleaned segment is marked, the old one is, the cleaned one has its name."""


class BusyDisk(SimulatedDisk):
    """A disk that runs a callback once a file is open."""

    after_next_open: Callable[[], None] | None = None

    def open(self, path: Path, *, create: bool = False) -> SimulatedFile:
        file = super().open(path, create=create)
        then, self.after_next_open = self.after_next_open, None
        if then is not None:
            then()
        return file


class Swapping:
    """A log whose first segment is about to be replaced, with most of its records removed."""

    def __init__(self) -> None:
        self.disk = BusyDisk()
        self.made = CompactedLog(
            filesystem=self.disk, config=compacting(file_delete_delay_ms=DELAY_MS)
        )
        for number in range(RECORDS):
            key = number % 7 if number < 150 else number
            self.made.put((b"k%d" % key, b"v%d" % number * 20))
        self.made.roll()
        self.made.put((b"x", b"y"))
        self.log = self.made.log
        self.log.flush()
        self.reads = CachedReads(ReadBuffers())
        self.reads.next_log(MAX_BYTES)
        self._swap: Steps[None] | None = None

    def cool_down(self) -> None:
        self.disk.is_cold = lambda path: ".log" in path.name

    def read(self, offset: int) -> ReadResult:
        return self.log.take(self.log.find(Offset(offset), MAX_BYTES, self.reads), self.reads)

    def request(self, offset: int) -> NotCachedError:
        with pytest.raises(NotCachedError) as raised:
            self.read(offset)
        return raised.value

    def offsets(self, offset: int) -> list[int]:
        """Base offsets of the batches that a reader finally gets."""
        for _ in range(5):
            try:
                found = self.read(offset)
            except NotCachedError as cold:
                self.log.adopt(cold.load())
            else:
                return [batch.base_offset for batch in iterate_batches(found.records)]
        raise AssertionError("the read never completes")

    def swap(self, syncs: int) -> Callable[[], None]:
        """Runs the swap up to one of its syncs. Returns the function that completes it."""
        made = self.made
        compaction = made.cleaner.begin_with(made.cleaner.assess(self.log, made.now_ms), 0)
        group = compaction.step()
        assert group is not None
        self._swap = made.cleaner.applying(compaction, group, made.now_ms)
        for _ in range(syncs - 1):
            next(self._swap)()
        sync = next(self._swap)

        def finish() -> None:
            assert self._swap is not None
            sync()
            for later in self._swap:
                later()
            made.cleaner.finish(compaction)

        return finish


@pytest.mark.parametrize("syncs", range(1, SYNCS + 1))
@pytest.mark.parametrize("is_open", [True, False])
def test_a_cold_read_brings_no_bytes_of_the_segment_that_takes_its_name(
    syncs: int, is_open: bool
) -> None:
    swapping = Swapping()
    old = swapping.log.segments[0]
    if not is_open:
        old.release()
    swapping.cool_down()
    cold = swapping.request(100)

    finish = swapping.swap(syncs)
    swapping.log.adopt(cold.load())

    assert swapping.offsets(100) == list(range(100, RECORDS))
    finish()
    assert swapping.offsets(100) == list(range(143, RECORDS))
    assert swapping.log.damage is None


def test_indexes_that_a_thread_rebuilds_do_not_become_those_of_the_cleaned_segment() -> None:
    """The thread has opened the old segment, and the swap happens before it begins to read."""
    swapping = Swapping()
    old = swapping.log.segments[0]
    paths = [old.offset_index.path, old.time_index.path]
    examine = old.examination()
    swaps: list[Callable[[], None]] = []
    written: list[bytes] = []

    def swap() -> None:
        swaps.append(swapping.swap(SYNCS))
        written.extend(read_whole(swapping.disk, path) for path in paths)

    swapping.disk.after_next_open = swap
    swapping.log.adopt(examine())
    swaps[0]()

    assert [read_whole(swapping.disk, path) for path in paths] == written
    assert swapping.offsets(100) == list(range(143, RECORDS))


def test_a_thread_that_is_late_handles_a_segment_that_was_removed() -> None:
    """The segment was requested under its last name, which now looks like a missing file."""
    swapping = Swapping()
    finish = swapping.swap(SYNCS)
    swapping.log.segments[0].release()
    swapping.cool_down()
    late = swapping.request(100)
    finish()
    assert swapping.log.remove_deleted(swapping.made.now_ms + DELAY_MS) == 1

    swapping.log.adopt(late.load())

    assert swapping.log.directory.is_online
    assert swapping.offsets(100) == list(range(143, RECORDS))


def test_a_segment_is_readable_until_the_second_swap_ends_even_if_files_of_the_first_are_due() -> (
    None
):
    swapping = Swapping()
    swapping.swap(SYNCS)()
    swapping.made.put((b"k150", b"again"))
    swapping.made.roll()
    swapping.made.put((b"x", b"y"))
    swapping.log.flush()
    finish = swapping.swap(SYNCS)
    swapping.cool_down()

    swapping.log.remove_deleted(swapping.made.now_ms + DELAY_MS)

    swapping.log.segments[0].release()
    assert swapping.offsets(150)[0] == 150
    assert swapping.log.directory.is_online
    finish()
    assert swapping.log.remove_deleted(swapping.made.now_ms + DELAY_MS) > 0
