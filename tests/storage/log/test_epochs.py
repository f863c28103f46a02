"""Leader epochs: with them a follower finds where two logs diverged."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import unpack

from moldau.storage.disk.failures import CorruptCheckpointError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.epochs import EPOCH_FILE, EpochStart, LeaderEpochCache
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset

PATH = Path("/t-0") / EPOCH_FILE


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.plant(PATH.parent / "x", b"")
    return disk


def start(epoch: int, offset: int) -> EpochStart:
    return EpochStart(LeaderEpoch(epoch), Offset(offset))


def cache_of(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(new_disk(), PATH, entries=[start(*entry) for entry in entries])


def end_of(cache: LeaderEpochCache, epoch: int) -> tuple[int, int]:
    return cache.end_offset_for(LeaderEpoch(epoch), Offset(100))


def test_a_flush_writes_assigned_epochs_in_kafkas_format() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, PATH)
    cache.assign(LeaderEpoch(0), Offset(0))
    cache.assign(LeaderEpoch(3), Offset(17))
    assert disk.effects == 0
    assert cache.has_unwritten_changes
    cache.flush()
    assert not cache.has_unwritten_changes

    assert disk.files()[str(PATH)] == b"0\n2\n0 0\n3 17\n"
    for _, left in disk.variants_after_crash():
        assert LeaderEpochCache(left, PATH).entries == [start(0, 0), start(3, 17)]


def test_the_same_epoch_again_writes_nothing() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, PATH)
    cache.assign(LeaderEpoch(2), Offset(5))
    cache.flush()
    effects = disk.effects
    cache.assign(LeaderEpoch(2), Offset(5))
    cache.assign(LeaderEpoch(2), Offset(9))
    cache.flush()
    assert disk.effects == effects
    assert cache.entries == [start(2, 5)]


@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        ((4, 30), [(1, 0), (2, 10), (3, 20), (4, 30)]),
        ((4, 20), [(1, 0), (2, 10), (4, 20)]),
        ((4, 5), [(1, 0), (4, 5)]),
        ((4, 0), [(4, 0)]),
        ((3, 15), [(1, 0), (2, 10), (3, 15)]),
        ((2, 12), [(1, 0), (2, 12)]),
        ((0, 40), [(0, 40)]),
    ],
)
def test_a_new_epoch_drops_the_entries_that_contradict_it(
    assigned: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    cache = cache_of((1, 0), (2, 10), (3, 20))
    cache.assign(*start(*assigned))
    assert cache.entries == left


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_impossible_epochs_are_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="impossible"):
        cache_of().assign(*start(*entry))


def test_end_offsets_follow_kip_101_and_279() -> None:
    cache = cache_of((2, 10), (4, 20), (7, 50))
    assert end_of(cache, 2) == (2, 20)
    assert end_of(cache, 4) == (4, 50)
    assert end_of(cache, 7) == (7, 100), "the latest epoch ends where the log ends"
    assert end_of(cache, 3) == (2, 20), "an unknown epoch is answered with the one before it"
    assert end_of(cache, 5) == (4, 50)
    assert end_of(cache, 1) == (1, 10), "older than everything: continue at our start"
    assert end_of(cache, 8) == (-1, -1), "newer than everything: the answer is unknown"
    assert end_of(cache, -1) == (-1, -1)
    assert end_of(cache_of(), 0) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    cache = cache_of((2, 10), (4, 20))
    found = [cache.epoch_for_offset(Offset(offset)) for offset in (0, 9, 10, 19, 20, 1000)]
    assert found == [None, None, 2, 2, 4, 4]
    assert cache.latest_epoch == 4
    assert cache.earliest_entry == (2, 10)
    assert cache.previous_epoch(LeaderEpoch(4)) == 2
    assert cache.previous_epoch(LeaderEpoch(2)) is None
    assert cache_of().latest_epoch is None
    assert cache_of().earliest_entry is None


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (100, [(1, 5), (2, 10), (3, 20)]),
        (21, [(1, 5), (2, 10), (3, 20)]),
        (20, [(1, 5), (2, 10)]),
        (6, [(1, 5)]),
        (5, []),
        (0, []),
        (-1, [(1, 5), (2, 10), (3, 20)]),
    ],
)
def test_truncating_the_end_drops_epochs_that_start_at_or_after_it(
    offset: int, left: list[tuple[int, int]]
) -> None:
    cache = cache_of((1, 5), (2, 10), (3, 20))
    cache.truncate_from_end(Offset(offset))
    assert cache.entries == left


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, [(1, 5), (2, 10), (3, 20)]),
        (5, [(1, 5), (2, 10), (3, 20)]),
        (7, [(1, 7), (2, 10), (3, 20)]),
        (10, [(2, 10), (3, 20)]),
        (15, [(2, 15), (3, 20)]),
        (500, [(3, 500)]),
    ],
)
def test_truncating_the_start_moves_the_covering_epoch(
    offset: int, left: list[tuple[int, int]]
) -> None:
    cache = cache_of((1, 5), (2, 10), (3, 20))
    cache.truncate_from_start(Offset(offset))
    assert cache.entries == left


def test_truncation_is_durable_with_the_next_flush_only() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, PATH)
    cache.assign(LeaderEpoch(1), Offset(0))
    cache.assign(LeaderEpoch(2), Offset(10))
    cache.flush()
    effects = disk.effects
    cache.truncate_from_end(Offset(10))
    cache.truncate_from_start(Offset(4))
    assert disk.effects == effects
    cache.flush()
    assert LeaderEpochCache(disk, PATH).entries == [start(1, 4)]
    cache.clear()
    cache.flush()
    assert disk.files()[str(PATH)] == b"0\n0\n"


def test_a_recovery_must_scan_from_the_first_unwritten_epoch() -> None:
    cache = cache_of((1, 5), (2, 10), (3, 20))
    assert cache.unwritten_from == 5
    cache.flush()
    assert cache.unwritten_from is None
    cache.truncate_from_start(Offset(12))
    assert cache.unwritten_from is None, "the file is cut when it is read"
    cache.assign(LeaderEpoch(4), Offset(30))
    cache.assign(LeaderEpoch(5), Offset(40))
    assert cache.unwritten_from == 30
    cache.truncate_from_end(Offset(25))
    assert cache.unwritten_from is None
    cache.truncate_from_end(Offset(15))
    cache.assign(LeaderEpoch(3), Offset(17))
    assert cache.unwritten_from == 17, "the file has another start for it"
    cache.flush()
    assert cache.unwritten_from is None


def test_a_recovery_scan_writes_once() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, PATH, entries=())
    for number in range(50):
        cache.assign(LeaderEpoch(number // 10), Offset(number))
    assert disk.effects == 0
    cache.flush()
    cache.moved_to(PATH)
    assert LeaderEpochCache(disk, PATH).entries == [start(n, 10 * n) for n in range(5)]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2**63 - 1)), max_size=20))
def test_any_order_of_assignments_leaves_rising_entries_that_read_back(
    assignments: list[tuple[int, int]],
) -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, PATH)
    for assigned in assignments:
        cache.assign(*start(*assigned))
        latest = cache.entries[-1]
        assert latest.epoch == assigned[0]
        assert latest.start_offset <= assigned[1]
    entries = cache.entries
    assert entries == sorted(set(entries))
    assert [entry.start_offset for entry in entries] == sorted(
        {entry.start_offset for entry in entries}
    )
    cache.flush()
    assert LeaderEpochCache(disk, PATH).entries == entries


def test_a_damaged_file_is_refused_or_is_itself_well_formed() -> None:
    content = b"0\n3\n1 0\n12 345\n13 6789\n"
    for damaged in all_damages(content):
        disk = new_disk()
        disk.plant(PATH, damaged)
        try:
            cache = LeaderEpochCache(disk, PATH)
        except CorruptCheckpointError:
            continue
        rewritten = LeaderEpochCache(disk, PATH, entries=cache.entries)
        rewritten.flush()
        assert disk.files()[str(PATH)] == damaged


def test_a_truncated_file_is_refused() -> None:
    for damaged in cuts(b"0\n3\n1 0\n12 345\n13 6789\n"):
        disk = new_disk()
        disk.plant(PATH, damaged)
        with pytest.raises(CorruptCheckpointError, match=str(PATH)):
            LeaderEpochCache(disk, PATH)


@pytest.mark.parametrize("lines", ["1 0\n1 5", "1 5\n2 5", "2 0\n1 5", "1 5\n2 0"])
def test_entries_that_do_not_rise_are_refused(lines: str) -> None:
    disk = new_disk()
    disk.plant(PATH, f"0\n2\n{lines}\n".encode())
    with pytest.raises(CorruptCheckpointError, match="does not follow"):
        LeaderEpochCache(disk, PATH)


def test_kafkas_files_are_read_and_rewritten_to_the_byte(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    latest = set()
    for path in unpack("clean", tmp_path).glob(f"*-[0-9]/{EPOCH_FILE}"):
        before = path.read_bytes()
        cache = LeaderEpochCache(filesystem, path)
        latest.add(cache.latest_epoch)
        LeaderEpochCache(filesystem, path, entries=cache.entries).flush()
        assert path.read_bytes() == before
    assert latest == {2}
