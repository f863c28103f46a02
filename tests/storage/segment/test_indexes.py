"""Offset and time index: Kafka's entries, found by bisection, rebuilt if broken."""

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import unpack

from moldau.storage.disk.failures import CorruptIndexError, InvalidIndexEntryError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.segment.indexes import OffsetIndex, TimeIndex
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset, TimestampMs

PATH = Path("/00000000000000001000.index")
BASE = Offset(1000)
MAX_BYTES = 10 << 20


def offset_index(disk: SimulatedDisk, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(disk, PATH, BASE, max_bytes)


def time_index(disk: SimulatedDisk, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(disk, PATH, BASE, max_bytes)


def rising(count: int, highest: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, highest), max_size=count, unique=True).map(sorted)


# Relative offsets and positions, both rising.
OFFSET_ENTRIES = st.tuples(rising(60, 2**31 - 1), rising(60, 2**31 - 1)).map(
    lambda columns: list(zip(*columns, strict=False))
)
TIME_ENTRIES = st.tuples(rising(60, 2**62), rising(60, 2**31 - 1)).map(
    lambda columns: list(zip(*columns, strict=False))
)


@settings(deadline=None, max_examples=150)
@given(OFFSET_ENTRIES, st.integers(-1, 2**31))
def test_the_offset_index_is_kafkas_bytes_and_finds_the_greatest_entry(
    entries: list[tuple[int, int]], wanted: int
) -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    for relative, position in entries:
        index.append(Offset(BASE + relative), position)
    index.close()

    assert disk.files()[str(PATH)] == b"".join(struct.pack(">ii", *entry) for entry in entries)
    again = offset_index(disk)
    absolute = [(BASE + relative, position) for relative, position in entries]
    assert again.entries == absolute
    below = [entry for entry in absolute if entry[0] <= BASE + wanted]
    assert again.lookup(Offset(BASE + wanted)) == (below[-1] if below else (BASE, 0))
    after = [entry for entry in absolute if entry[1] >= wanted]
    assert again.offset_at_or_after(wanted) == (after[0][0] if after else None)


@settings(deadline=None, max_examples=150)
@given(TIME_ENTRIES, st.integers(-1, 2**62))
def test_the_time_index_is_kafkas_bytes_and_finds_the_last_entry_not_after(
    entries: list[tuple[int, int]], wanted: int
) -> None:
    disk = SimulatedDisk()
    index = time_index(disk)
    for timestamp, relative in entries:
        index.append(TimestampMs(timestamp), Offset(BASE + relative))
    index.close()

    assert disk.files()[str(PATH)] == b"".join(struct.pack(">qi", *entry) for entry in entries)
    again = time_index(disk)
    absolute = [(timestamp, BASE + relative) for timestamp, relative in entries]
    assert again.entries == absolute
    assert again.last_entry == (absolute[-1] if absolute else (-1, BASE))
    below = [entry for entry in absolute if entry[0] <= wanted]
    assert again.lookup(TimestampMs(wanted)) == (below[-1] if below else (-1, BASE))


@settings(deadline=None, max_examples=100)
@given(OFFSET_ENTRIES, st.integers(0, 2**31), st.booleans())
def test_truncation_keeps_exactly_the_entries_before_the_offset(
    entries: list[tuple[int, int]], cut: int, reopened: bool
) -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    for relative, position in entries:
        index.append(Offset(BASE + relative), position)
    if reopened:
        index.close()
    index.truncate_to(Offset(BASE + cut))
    kept = [(BASE + relative, position) for relative, position in entries if relative < cut]
    assert index.entries == kept
    index.close()
    assert offset_index(disk).entries == kept


def test_time_entries_of_one_offset_are_truncated_together() -> None:
    index = time_index(SimulatedDisk())
    for timestamp, offset in ((1, 1000), (2, 1005), (3, 1005), (4, 1009)):
        index.append(TimestampMs(timestamp), Offset(offset))
    index.truncate_to(Offset(1005))
    assert index.entries == [(1, 1000)]


def test_an_entry_must_follow_the_last_one() -> None:
    index = offset_index(SimulatedDisk())
    index.append(Offset(1010), 500)
    for offset, position in ((1010, 600), (1009, 600), (1011, 499)):
        with pytest.raises(InvalidIndexEntryError, match="does not follow"):
            index.append(Offset(offset), position)
    assert index.entries == [(1010, 500)]
    assert index.last_offset == 1010


@pytest.mark.parametrize("offset", [BASE - 1, BASE + 2**31])
def test_an_offset_too_far_from_the_base_is_refused(offset: int) -> None:
    offsets, times = offset_index(SimulatedDisk()), time_index(SimulatedDisk())
    assert not offsets.can_append_offset(Offset(offset))
    with pytest.raises(InvalidIndexEntryError, match="does not fit"):
        offsets.append(Offset(offset), 1)
    with pytest.raises(InvalidIndexEntryError, match="does not fit"):
        times.append(TimestampMs(1), Offset(offset))
    assert offsets.can_append_offset(Offset(BASE + 2**31 - 1))


@pytest.mark.parametrize("position", [-1, 2**31])
def test_an_impossible_position_is_refused(position: int) -> None:
    with pytest.raises(InvalidIndexEntryError, match="position"):
        offset_index(SimulatedDisk()).append(BASE, position)


def test_an_offset_index_is_full_at_the_entries_that_its_bytes_hold() -> None:
    index = offset_index(SimulatedDisk(), max_bytes=30)
    for step in range(3):
        assert not index.is_full
        index.append(Offset(BASE + step), step)
    assert index.is_full
    with pytest.raises(InvalidIndexEntryError, match="full"):
        index.append(Offset(BASE + 9), 9)


def test_a_time_index_reserves_one_entry_for_the_seal() -> None:
    index = time_index(SimulatedDisk(), max_bytes=40)
    index.append(TimestampMs(1), Offset(1001))
    index.append(TimestampMs(2), Offset(1002))
    assert index.is_full
    with pytest.raises(InvalidIndexEntryError, match="full"):
        index.append(TimestampMs(3), Offset(1003))
    index.append(TimestampMs(3), Offset(1003), sealing=True)
    index.append(TimestampMs(3), Offset(1003), sealing=True)
    assert index.last_entry == (3, 1003)
    assert index.entry_count == 3


def test_the_time_index_takes_only_rising_timestamps() -> None:
    index = time_index(SimulatedDisk())
    index.append(TimestampMs(-1), Offset(1000))
    index.append(TimestampMs(5), Offset(1001))
    index.append(TimestampMs(5), Offset(1004))
    assert index.entries == [(5, 1001)]
    for timestamp, offset in ((4, 1010), (9, 1000)):
        with pytest.raises(InvalidIndexEntryError, match="does not follow"):
            index.append(TimestampMs(timestamp), Offset(offset))


@pytest.mark.parametrize("entries", [0, 1, 700])
def test_zeros_that_kafka_allocated_ahead_are_not_entries(entries: int) -> None:
    disk = SimulatedDisk()
    written = b"".join(struct.pack(">ii", i + 1, i * 256) for i in range(entries))
    disk.plant(PATH, written.ljust(200_000, b"\0"))
    index = offset_index(disk)
    assert index.entry_count == entries

    index.append(Offset(BASE + entries + 1), entries * 256)
    index.flush()
    assert disk.files()[str(PATH)] == written + struct.pack(">ii", entries + 1, entries * 256)


def test_a_single_first_time_entry_of_zeros_is_an_entry() -> None:
    disk = SimulatedDisk()
    index = time_index(disk)
    index.append(TimestampMs(0), BASE)
    index.close()
    assert time_index(disk).last_entry == (0, BASE)


def test_an_index_is_not_read_before_it_is_needed() -> None:
    disk = SimulatedDisk()
    disk.plant(PATH, b"broken!")
    disk.fail_reads(PATH, OSError("not yet"))
    index = offset_index(disk)
    index.rename(PATH.with_suffix(".deleted"))
    index.close()
    assert disk.files() == {str(PATH.with_suffix(".deleted")): b"broken!"}
    index.remove()
    assert disk.files() == {}


def test_entries_are_written_in_groups_and_all_of_them_by_a_flush() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    for step in range(1500):
        index.append(Offset(BASE + step), step)
    assert [effect.kind for effect in disk.trace] == ["create", "append", "append"]
    index.flush()
    index.flush()
    assert len(disk.files()[str(PATH)]) == 1500 * 8
    after_crash = disk.after_crash(lambda change: change.path != str(PATH))
    assert offset_index(after_crash).entry_count == 1500


def test_a_failed_write_loses_no_entry_and_the_next_one_repairs_the_file() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(Offset(1001), 10)
    index.append(Offset(1002), 20)
    disk.short_write_at(2, 11, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        index.write_out()
    index.append(Offset(1003), 30)
    index.close()
    assert offset_index(disk).entries == [(1001, 10), (1002, 20), (1003, 30)]


def test_a_closed_index_reopens_on_use() -> None:
    index = offset_index(SimulatedDisk())
    index.append(Offset(1001), 10)
    index.close()
    assert index.lookup(Offset(1005)) == (1001, 10)
    index.append(Offset(1002), 20)
    index.close()
    assert index.entry(1) == (1002, 20)
    index.moved_to(PATH)


def test_reset_empties_a_broken_index_without_reading_it() -> None:
    disk = SimulatedDisk()
    disk.plant(PATH, b"\xff" * 17)
    index = offset_index(disk)
    with pytest.raises(CorruptIndexError, match="17 bytes are not a multiple of 8"):
        index.sanity_check()
    index.reset()
    assert index.entries == []
    index.append(Offset(1001), 10)
    index.close()
    assert offset_index(disk).entries == [(1001, 10)]


def test_an_abandoned_index_writes_nothing() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(Offset(1001), 10)
    index.abandon()
    assert disk.effects == 0


def test_a_damaged_offset_index_is_refused_or_still_ordered() -> None:
    content = b"".join(struct.pack(">ii", 10 * i, 4096 * i) for i in range(1, 9))
    for damaged in all_damages(content):
        disk = SimulatedDisk()
        disk.plant(PATH, damaged)
        index = offset_index(disk)
        try:
            entries = index.entries
        except CorruptIndexError:
            continue
        assert len(damaged) % 8 == 0
        packed = b"".join(struct.pack(">ii", offset - BASE, at) for offset, at in entries)
        assert damaged[: len(packed)] == packed
        assert all(a < c and b <= d for (a, b), (c, d) in pairwise(entries))


def test_a_damaged_time_index_is_refused_or_still_ordered() -> None:
    content = b"".join(struct.pack(">qi", 1_700_000_000_000 + i, 7 * i) for i in range(6))
    for damaged in all_damages(content):
        disk = SimulatedDisk()
        disk.plant(PATH, damaged)
        try:
            entries = time_index(disk).entries
        except CorruptIndexError:
            continue
        packed = b"".join(struct.pack(">qi", at, offset - BASE) for at, offset in entries)
        assert damaged[: len(packed)] == packed
        assert all(a < c and b <= d for (a, b), (c, d) in pairwise(entries))


def test_a_truncated_index_is_a_prefix_or_refused() -> None:
    content = b"".join(struct.pack(">ii", 10 * i, 4096 * i) for i in range(1, 9))
    for damaged in cuts(content):
        disk = SimulatedDisk()
        disk.plant(PATH, damaged)
        if len(damaged) % 8:
            with pytest.raises(CorruptIndexError):
                offset_index(disk).sanity_check()
        else:
            assert offset_index(disk).entry_count == len(damaged) // 8


def batch_starts(log: bytes) -> dict[int, tuple[int, int]]:
    """Position of each batch -> its last offset and its max timestamp, parsed independently."""
    found, position = {}, 0
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        last_delta = struct.unpack_from(">i", log, position + 23)[0]
        max_timestamp = struct.unpack_from(">q", log, position + 35)[0]
        found[position] = base + last_delta, max_timestamp
        position += 12 + length
    return found


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_kafkas_own_indexes_agree_with_kafkas_logs(which: str, tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    root = unpack("clean" if which == "clean" else "dirty", tmp_path)
    seen = 0
    for log_path in sorted(root.glob("*/*.log")):
        base = Offset(int(log_path.stem))
        log = log_path.read_bytes()
        batches = batch_starts(log)
        offsets = OffsetIndex(filesystem, log_path.with_suffix(".index"), base, MAX_BYTES)
        for offset, position in offsets.entries:
            assert batches[position][0] == offset
            assert offsets.lookup(offset) == (offset, position)
            seen += 1
        times = TimeIndex(filesystem, log_path.with_suffix(".timeindex"), base, MAX_BYTES)
        last_offset = max((last for last, _ in batches.values()), default=-1)
        for timestamp, offset in times.entries:
            assert timestamp in {at for _, at in batches.values()}
            assert base <= offset <= last_offset
            seen += 1
        if which == "clean" and log and not log_path.parent.name.endswith("-delete"):
            assert times.last_entry[0] == max(at for _, at in batches.values())
    assert seen > 20


def test_opening_and_closing_kafkas_clean_indexes_changes_no_byte(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    for path in unpack("clean", tmp_path).glob("*-[0-9]/*.index"):
        before = path.read_bytes()
        index = OffsetIndex(filesystem, path, Offset(int(path.stem)), MAX_BYTES)
        index.sanity_check()
        index.flush()
        index.close()
        assert path.read_bytes() == before


@pytest.mark.parametrize("entry", [(-1, 5), (5, -1)])
def test_negative_first_entries_are_damage(entry: tuple[int, int]) -> None:
    disk = SimulatedDisk()
    disk.plant(PATH, struct.pack(">ii", *entry))
    with pytest.raises(CorruptIndexError, match="negative"):
        offset_index(disk).sanity_check()
    disk.plant(PATH, struct.pack(">qi", *entry))
    with pytest.raises(CorruptIndexError, match="negative"):
        time_index(disk).sanity_check()


def test_lost_pages_in_the_middle_shorten_the_index_or_are_detected() -> None:
    """The entries before them are valid, and a shorter index is only slower."""
    content = b"".join(struct.pack(">ii", i, i * 100) for i in range(1, 30_001))
    counts: list[int | None] = []
    for first_lost in (11_776, 20_000):
        disk = SimulatedDisk()
        lost = first_lost * 8
        disk.plant(PATH, content[:lost] + bytes(4096) + content[lost + 4096 :])
        try:
            counts.append(offset_index(disk).entry_count)
        except CorruptIndexError:
            counts.append(None)
    assert counts == [11_776, None]


def test_a_new_segments_empty_indexes_are_files() -> None:
    disk = SimulatedDisk()
    index = time_index(disk)
    index.reset()
    assert index.size_in_bytes == 0
    index.close()
    assert disk.files() == {str(PATH): b""}
    index.append(TimestampMs(7), Offset(1007))
    assert index.entry(0) == (7, 1007)
    assert index.size_in_bytes == 12
