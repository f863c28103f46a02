"""The aborted transactions of a segment."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import expected_topics, unpack

from moldau.storage.disk.failures import CorruptIndexError, InvalidIndexEntryError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset, ProducerId

PATH = Path("/00000000000000000000.txnindex")


def aborted(producer: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(last), Offset(stable))


def filled(*entries: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(SimulatedDisk(), PATH, Offset(0))
    for entry in entries:
        index.append(entry)
    return index


ENTRIES = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(0, 50), st.integers(1, 50), st.integers(0, 50)),
    max_size=20,
)


def in_log_order(steps: list[tuple[int, int, int, int]]) -> list[AbortedTransaction]:
    entries, last, stable = [], 0, 0
    for producer, length, gap, stable_step in steps:
        last += gap
        stable = min(stable + stable_step, last + 1)
        entries.append(aborted(producer, max(0, last - length), last, stable))
    return entries


@settings(deadline=None, max_examples=150)
@given(ENTRIES, st.integers(0, 1000), st.integers(1, 200))
def test_a_search_finds_the_same_as_a_scan_of_all_entries(
    steps: list[tuple[int, int, int, int]], fetch_offset: int, length: int
) -> None:
    entries = in_log_order(steps)
    upper = fetch_offset + length
    wanted: list[AbortedTransaction] = []
    complete = False
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper:
            wanted.append(entry)
        if entry.last_stable_offset >= upper:
            complete = True
            break
    index = filled(*entries)
    index.close()
    assert index.entries == entries
    assert index.collect(Offset(fetch_offset), Offset(upper)) == (wanted, complete)


def test_the_file_appears_with_the_first_abort_and_is_kafkas_bytes() -> None:
    disk = SimulatedDisk()
    index = TransactionIndex(disk, PATH, Offset(0))
    assert index.is_empty
    index.flush()
    index.truncate_to(Offset(0))
    index.reset()
    index.rename(PATH)
    assert not index.take_unsynced()
    index.close()
    assert disk.files() == {}

    index.append(aborted(7, 1, 5, 6))
    assert not index.is_empty
    assert disk.files() == {str(PATH): struct.pack(">hqqqq", 0, 7, 1, 5, 6)}
    index.flush()
    assert disk.unsynced()[0].path == "/"


def test_aborts_must_come_in_log_order() -> None:
    index = filled(aborted(1, 0, 10, 11))
    for last in (9, 10):
        with pytest.raises(InvalidIndexEntryError, match="does not follow 10"):
            index.append(aborted(2, 0, last, 11))
    assert len(index.entries) == 1


def test_truncation_drops_the_aborts_whose_marker_is_gone() -> None:
    index = filled(aborted(1, 0, 10, 11), aborted(2, 3, 20, 21), aborted(1, 15, 30, 31))
    index.truncate_to(Offset(20))
    assert [entry.last_offset for entry in index.entries] == [10]
    index.append(aborted(2, 3, 25, 26))
    index.close()
    assert [entry.last_offset for entry in index.entries] == [10, 25]


def test_an_append_that_fails_adds_nothing_in_memory() -> None:
    disk = SimulatedDisk()
    index = TransactionIndex(disk, PATH, Offset(0))
    disk.short_write_at(2, 10, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        index.append(aborted(1, 0, 10, 11))
    assert index.is_empty
    index.reset()
    assert disk.files()[str(PATH)] == b""


def test_the_index_is_moved_and_removed_with_its_segment() -> None:
    disk = SimulatedDisk()
    index = TransactionIndex(disk, PATH, Offset(0))
    index.append(aborted(1, 0, 10, 11))
    index.rename(PATH.with_suffix(".deleted"))
    assert list(disk.files()) == [str(PATH.with_suffix(".deleted"))]
    index.moved_to(PATH.with_suffix(".deleted"))
    index.remove()
    assert disk.files() == {}


def test_a_damaged_index_is_refused_or_is_a_valid_list_of_other_aborts() -> None:
    entries = [aborted(1000, 5, 10, 11), aborted(2000, 3, 20, 21), aborted(1000, 15, 30, 31)]
    content = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
    for damaged in all_damages(content):
        disk = SimulatedDisk()
        disk.plant(PATH, damaged)
        index = TransactionIndex(disk, PATH, Offset(8))
        try:
            read = index.entries
        except CorruptIndexError:
            continue
        assert b"".join(struct.pack(">hqqqq", 0, *entry) for entry in read) == damaged
    for damaged in cuts(content):
        disk = SimulatedDisk()
        disk.plant(PATH, damaged)
        if len(damaged) % 34:
            with pytest.raises(CorruptIndexError, match="multiple of 34"):
                TransactionIndex(disk, PATH, Offset(8)).sanity_check()


@pytest.mark.parametrize(
    "entry",
    [(1, 7, 1, 5, 6), (0, 7, 1, 4, 6), (0, 7, 6, 5, 6), (0, 7, -1, 5, 6), (0, -7, 1, 5, 6)],
    ids=["version", "before the segment", "ends before it starts", "negative", "no producer"],
)
def test_an_impossible_entry_is_refused(entry: tuple[int, ...]) -> None:
    disk = SimulatedDisk()
    disk.plant(PATH, struct.pack(">hqqqq", *entry))
    with pytest.raises(CorruptIndexError):
        TransactionIndex(disk, PATH, Offset(5)).sanity_check()


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_kafkas_index_hides_the_records_that_read_committed_skips(
    which: str, tmp_path: Path
) -> None:
    root = unpack("clean" if which == "clean" else "dirty", tmp_path)
    for number, partition in expected_topics()["txns"].partitions.items():
        path = root / f"txns-{number}" / PATH.name
        index = TransactionIndex(DiskFileSystem(), path, Offset(0))
        found, _ = index.collect(Offset(0), partition.last_stable)
        assert found
        assert partition.committed_offsets is not None
        # The ranges of the aborted producer and the committed offsets do not overlap.
        for entry in found:
            inside = range(entry.first_offset, entry.last_offset + 1)
            assert not set(inside) & set(partition.committed_offsets)
