"""One segment: locating batches, repair of its indexes, truncation, and its files."""

from pathlib import Path

import pytest
from storage.log_maker import records_batch

from moldau.protocol.records.batch_builder import BatchOptions
from moldau.protocol.records.scanned_batch import BASE_OFFSET
from moldau.storage.disk import disk_calls
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.names import SegmentFileName, parse_segment_file_name
from moldau.storage.segment.scan import PIECE_BYTES, SegmentScan
from moldau.storage.segment.segment import BatchSpan, Segment, SegmentSettings
from moldau.types import Offset

BASE = 100
SETTINGS = SegmentSettings(index_interval_bytes=200, index_bytes_max=1 << 20)


def new_segment(path: Path) -> Segment:
    segment = Segment(DiskFileSystem(), path, Offset(BASE), SETTINGS, created_ms=0)
    segment.create()
    return segment


def fill(segment: Segment, count: int = 50, value: bytes = b"v" * 20, *, first: int = 0) -> None:
    """Batches of two records, with a gap of one offset between them."""
    for number in range(first, first + count):
        base = BASE + 3 * number
        batch = records_batch(
            [value, value], BatchOptions(base_offset=base), timestamp_ms=1_000 + 10 * number
        )
        position = segment.size
        segment.append([batch])
        segment.index_batch(position, Offset(base + 1), 1_001 + 10 * number)


def close_indexes(segment: Segment) -> None:
    segment.offset_index.close()
    segment.time_index.close()


@pytest.fixture(params=[False, True], ids=["active", "sealed"])
def segment(tmp_path: Path, request: pytest.FixtureRequest) -> Segment:
    made = new_segment(tmp_path)
    fill(made)
    if request.param:
        made.seal()
    return made


def test_the_batch_of_every_offset_is_found(segment: Segment) -> None:
    for number in range(50):
        for offset in (BASE + 3 * number - 1, BASE + 3 * number, BASE + 3 * number + 1):
            found = segment.locate(Offset(offset))
            assert found is not None
            assert found.base_offset == BASE + 3 * number
    assert segment.locate(Offset(BASE + 150)) is None
    assert segment.next_offset() == BASE + 149


def test_boundaries_are_ends_of_batches(segment: Segment) -> None:
    spans = list(segment.walk())
    size = spans[0].size
    for floor in (0, 10 * size, 47 * size):
        for limit in range(floor + size, min(floor + 7 * size, segment.size), 13):
            end, next_offset = segment.boundary(limit, floor)
            assert end == limit // size * size
            assert spans[end // size - 1].last_offset < next_offset
            assert next_offset <= spans[end // size].base_offset


def test_the_next_read_begins_where_the_last_one_ended(segment: Segment) -> None:
    spans = list(segment.walk())
    size = spans[0].size
    for end in (5 * size, 6 * size + 7):
        position, next_offset = segment.boundary(end, 2 * size)
        found = segment.locate(Offset(next_offset))
        assert found == spans[position // size]
        # Readers that did not make that read find the same.
        assert segment.locate(found.base_offset) == segment.locate(found.last_offset) == found


def test_no_read_begins_where_the_segment_was_cut(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment)
    size = segment.size // 50
    _, next_offset = segment.boundary(5 * size, 0)
    segment.truncate_to(Offset(next_offset))
    assert segment.locate(Offset(next_offset)) is None


@pytest.mark.parametrize("sends_files", [False, True])
@pytest.mark.parametrize(("wanted", "is_sure"), [(80_000, True), (80_000, False), (1 << 19, True)])
def test_bytes_that_a_thread_has_loaded_are_not_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: int,
    is_sure: bool,
    sends_files: bool,
) -> None:
    """On systems that cannot report cached bytes, the read would otherwise never end."""
    segment = new_segment(tmp_path)
    for number in range(1_000):
        position = segment.size
        segment.append([records_batch([bytes(1_000)], BatchOptions(base_offset=BASE + number))])
        segment.index_batch(position, Offset(BASE + number), number)
    segment.seal()
    monkeypatch.setattr(disk_calls, "CACHED_ONLY", 0)
    reads = CachedReads(ReadBuffers(), sends_files=sends_files)
    reads.next_log(wanted, is_sure=is_sure)
    first, end, content, loads = read_cold(segment, reads, wanted)
    assert len(content) == end - first.position
    assert first.position + wanted - first.size < end <= first.position + wanted
    assert loads > 0


def read_cold(
    segment: Segment, reads: CachedReads, wanted: int
) -> tuple[BatchSpan, int, memoryview, int]:
    """Reads from the second batch on. Returns the number of loads too."""
    for loads in range(5):
        try:
            first = segment.locate(Offset(BASE + 1), reads)
            assert first is not None
            end, _ = segment.boundary(first.position + wanted, first.position, reads)
            return first, end, segment.slice(first.position, end, reads), loads
        except NotCachedError as cold:
            cold.load()()
    raise AssertionError("the read does not end")


def test_index_entries_are_as_sparse_as_configured(segment: Segment) -> None:
    positions = [position for _, position in segment.offset_index.entries]
    assert len(positions) > 10
    assert all(b - a > 200 for a, b in zip([0, *positions], positions, strict=False))


def test_a_rebuilt_index_equals_the_one_made_by_appending(segment: Segment) -> None:
    offsets, times = segment.offset_index.entries, segment.time_index.entries
    segment.rebuild_indexes()
    assert segment.offset_index.entries == offsets
    # A rebuild ends like a seal, with the largest timestamp.
    assert segment.time_index.entries[: len(times)] == times
    assert segment.time_index.last_entry == (1_491, BASE + 148)


@pytest.mark.parametrize(
    ("appended", "is_rolled"), [(0, False), (1, False), (20, False), (20, True)]
)
def test_a_thread_rebuilds_the_indexes_of_a_segment_that_may_grow(
    tmp_path: Path, appended: int, is_rolled: bool
) -> None:
    (tmp_path / "a").mkdir()
    segment, expected = new_segment(tmp_path / "a"), new_segment(tmp_path)
    fill(segment)
    fill(expected, 50 + appended)
    expected.rebuild_indexes()
    close_indexes(segment)
    segment.offset_index.path.write_bytes(b"abc")
    segment.time_index.path.write_bytes(b"abc")
    adopt = segment.examination()()
    if appended:
        # An append does not wait for the thread: it puts an index of its own into place.
        fill(segment, appended, first=50)
    if is_rolled:
        segment.seal()
    adopt()
    assert segment.offset_index.entries == expected.offset_index.entries
    assert set(expected.time_index.entries) <= set(segment.time_index.entries)
    assert segment.time_index.last_entry == expected.time_index.last_entry
    assert segment.max_timestamp == expected.max_timestamp
    close_indexes(segment)
    assert segment.offset_index.entries == expected.offset_index.entries
    if not is_rolled:
        # And it is indexed as before from here on.
        fill(segment, 20, first=50 + appended)
        fill(expected, 20, first=50 + appended)
        assert segment.offset_index.entries == expected.offset_index.entries


def test_the_largest_timestamp_is_known_after_opening_again(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment)
    segment.seal()
    segment.abandon()
    again = Segment(DiskFileSystem(), tmp_path, Offset(BASE), SETTINGS, created_ms=0)
    assert again.max_timestamp == (1_491, BASE + 148)
    assert again.largest_timestamp_ms() == 1_491
    assert again.first_timestamp_ms() == 1_001


def test_truncation_keeps_the_batches_before_the_offset(tmp_path: Path) -> None:
    for number in (0, 1, 25, 49):
        segment = new_segment(tmp_path)
        fill(segment)
        spans = list(segment.walk())
        dropped = segment.truncate_to(Offset(spans[number].base_offset + 1))
        assert dropped == spans[-1].position + spans[-1].size - spans[number].position
        assert list(segment.walk()) == spans[:number]
        assert segment.max_timestamp[0] == (991 + 10 * number if number else -1)
        assert all(offset < spans[number].base_offset for offset, _ in segment.offset_index.entries)
        segment.remove_files()


def test_a_batch_that_was_cut_off_is_not_found_again(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment, 3)
    last = segment.next_offset() - 1
    assert segment.locate(Offset(last)) is segment.locate(Offset(last))
    segment.truncate_to(Offset(last))
    assert segment.locate(Offset(last)) is None


def test_bytes_read_stay_when_the_segment_is_truncated(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment)
    segment.seal()
    view = segment.slice(0, segment.size)
    before = bytes(view)
    segment.truncate_to(Offset(BASE + 30))
    assert bytes(view) == before
    assert segment.next_offset() == BASE + 29
    segment.append([records_batch([b"more"], BatchOptions(base_offset=BASE + 30))])
    assert segment.next_offset() == BASE + 31


def test_damage_in_the_log_is_distinguished_from_damage_in_an_index(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment)
    segment.seal()
    segment.abandon()
    log, index = tmp_path / f"{BASE:020d}.log", tmp_path / f"{BASE:020d}.index"
    index.write_bytes(b"\x7f" * len(index.read_bytes()))
    segment = Segment(DiskFileSystem(), tmp_path, Offset(BASE), SETTINGS, created_ms=0)
    assert segment.next_offset() == BASE + 149
    segment.abandon()
    content = bytearray(log.read_bytes())
    content[16] = 7
    log.write_bytes(content)
    segment = Segment(DiskFileSystem(), tmp_path, Offset(BASE), SETTINGS, created_ms=0)
    lost = segment.locate(Offset(BASE))
    following = list(segment.walk())[1]
    (damaged,) = segment.damaged
    assert lost is not None
    assert (damaged.position, damaged.end) == (0, following.position)
    assert (lost.base_offset, lost.last_offset) == (BASE, following.base_offset - 1)
    assert segment.next_offset() == BASE + 149


def test_files_can_be_renamed_under_open_handles(segment: Segment) -> None:
    segment.change_life(".deleted")
    names = sorted(path.name for path in segment.directory.iterdir())
    assert names == [f"{BASE:020d}.{kind}.deleted" for kind in ("index", "log", "timeindex")]
    assert segment.next_offset() == BASE + 149
    segment.remove_files()
    assert not list(segment.directory.iterdir())


# Scanning


@pytest.mark.parametrize("count", [1, 7, 9, 40])
def test_a_scan_in_pieces_finds_every_batch(tmp_path: Path, count: int) -> None:
    """Some batches are larger than a piece, some cross its end."""
    segment = new_segment(tmp_path)
    sizes = [PIECE_BYTES + 100 if number == 3 else PIECE_BYTES // 7 for number in range(count)]
    if count == 40:
        sizes = [PIECE_BYTES // 20 + number for number in range(count)]
    for number, size in enumerate(sizes):
        segment.append([records_batch([b"v" * size], BatchOptions(base_offset=BASE + number))])
    scan = SegmentScan(segment.file, 0, segment.size, verify_crc=True)
    headers = [header for piece in scan for header in piece]
    assert [header[BASE_OFFSET] for header in headers] == list(range(BASE, BASE + count))
    assert (scan.valid_end, scan.problem) == (segment.size, None)
    assert scan.next_offset == BASE + count


def test_a_scan_stops_at_the_first_bad_batch_and_reports_the_reason(tmp_path: Path) -> None:
    segment = new_segment(tmp_path)
    fill(segment, 10)
    spans = list(segment.walk())
    content = bytearray(segment.path().read_bytes())
    content[spans[6].position + 70] ^= 1
    segment.path().write_bytes(content)
    scan = SegmentScan(segment.file, 0, segment.size, verify_crc=True)
    assert sum(len(piece) for piece in scan) == 6
    assert scan.valid_end == spans[6].position
    assert scan.problem is not None
    lenient = SegmentScan(segment.file, 0, segment.size, verify_crc=False)
    assert sum(len(piece) for piece in lenient) == 10


# Names


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", SegmentFileName(Offset(42), ".log", "")),
        (
            "00000000000000000042.txnindex.deleted",
            SegmentFileName(Offset(42), ".txnindex", ".deleted"),
        ),
        (
            "09223372036854775807.timeindex.swap",
            SegmentFileName(Offset(2**63 - 1), ".timeindex", ".swap"),
        ),
        ("00000000000000000042.snapshot", SegmentFileName(Offset(42), ".snapshot", "")),
        ("00000000000000000042.log.quarantined", None),
        ("00000000000000000042.log.swap.deleted", None),
        ("00000000000000000042", None),
        ("42.log", None),
        ("0000000000000000004x.log", None),
        ("leader-epoch-checkpoint", None),
        ("00000000000000000042-0000000001.checkpoint", None),
    ],
)
def test_file_names(name: str, parsed: SegmentFileName | None) -> None:
    assert parse_segment_file_name(name) == parsed
    if parsed is not None:
        assert str(parsed) == name
