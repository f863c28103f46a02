"""An inspection finds damage, locates it, and still shows everything after it."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage.inspections import (
    DEEP,
    HEADER_BYTES,
    LOG_NAME,
    batches_of,
    inspect,
    problems_of,
    with_crc,
)
from storage.samples import unpack

from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.storage.inspection.items import (
    FileEnd,
    FileKind,
    FileStart,
    OffsetIndexEntryFound,
    Remark,
)

LEADER_EPOCH = range(12, 16)
BASE_OFFSET = range(8)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture
def copy_of(clean: Path, tmp_path: Path) -> "Copier":
    return Copier(clean, tmp_path)


class Copier:
    """Copies a partition of the sample, to be damaged."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target

    def __call__(self, name: str) -> Path:
        return Path(shutil.copytree(self.source / name, self.target / name))


def flips(content: bytes) -> Iterator[tuple[int, bytes]]:
    for place, byte in enumerate(content):
        yield place, content[:place] + bytes([byte ^ 0x40]) + content[place + 1 :]


def test_every_changed_byte_of_a_log_is_found(copy_of: Copier) -> None:
    """Except for bytes that no check covers: leader epochs, and the last batch's base offset."""
    log = copy_of("txns-0") / LOG_NAME
    content = log.read_bytes()
    starts = [batch.position for batch in batches_of(log)]
    unguarded = {start + place for start in starts for place in LEADER_EPOCH}
    unguarded |= {starts[-1] + place for place in BASE_OFFSET}
    missed = set()
    for place, damaged in flips(content):
        log.write_bytes(damaged)
        if not problems_of(log):
            missed.add(place)
    assert missed <= unguarded


def test_a_cut_is_found_unless_it_is_between_two_batches(copy_of: Copier) -> None:
    log = copy_of("txns-1") / LOG_NAME
    content = log.read_bytes()
    boundaries = {batch.position for batch in batches_of(log)}
    for size in range(1, len(content)):
        log.write_bytes(content[:size])
        found = problems_of(log)
        assert bool(found) == (size not in boundaries), size
        if found:
            start = max(boundary for boundary in boundaries if boundary < size)
            assert found[0].position == start
            assert f"the last {size - start} bytes" in found[0].what


def test_damage_in_the_middle_does_not_hide_what_follows(copy_of: Copier) -> None:
    log = copy_of("codecs-0") / LOG_NAME
    content = bytearray(log.read_bytes())
    whole = batches_of(log)
    second, third = whole[1], whole[2]
    # Only a search can find the next batch after a wrong length.
    content[second.position + 8 : second.position + 12] = struct.pack(">i", 1_000_000)
    log.write_bytes(content)
    (problem,) = problems_of(log)
    assert problem.position == second.position
    assert f"the next batch begins at {third.position}" in problem.what
    assert [batch.base_offset for batch in batches_of(log)] == [0, 80, 120, 160]


def test_a_length_that_swallows_the_next_batch_does_not_hide_the_rest(copy_of: Copier) -> None:
    log = copy_of("codecs-0") / LOG_NAME
    content = bytearray(log.read_bytes())
    second, third, fourth = batches_of(log)[1:4]
    length = third.position + 20 - second.position - 12
    content[second.position + 8 : second.position + 12] = struct.pack(">i", length)
    log.write_bytes(content)
    assert [problem.position for problem in problems_of(log)] == [second.position]
    found = [batch.position for batch in batches_of(log)]
    assert found[2:] == [third.position, fourth.position, batches_of(log)[-1].position]


def test_zeros_at_the_end_are_a_torn_tail(copy_of: Copier) -> None:
    log = copy_of("codecs-0") / LOG_NAME
    with log.open("ab") as file:
        file.write(bytes(500))
    (problem,) = problems_of(log)
    assert problem.position == 4682
    assert problem.what.startswith("torn tail: the last 500 bytes")
    assert "truncates them" in problem.remedy


def test_old_message_formats_are_reported(tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(struct.pack(">qiIbb", 0, 100, 7, 1, 0) + bytes(100))
    (problem,) = problems_of(log)
    assert "message format 1, which Kafka 4 no longer reads" in problem.what


def test_records_that_a_producer_wrote_badly_are_a_problem(tmp_path: Path) -> None:
    record = Record(0, 1, b"k", b"v", ())
    log = tmp_path / LOG_NAME
    content = bytearray(build_batch([record]))
    # The record's length is wrong, under a matching checksum.
    content[HEADER_BYTES] += 40
    log.write_bytes(with_crc(content))
    assert problems_of(log) == []
    (problem,) = problems_of(log, DEEP)
    assert "the records of the batch at offset 0 are broken" in problem.what


def test_offsets_that_go_back_are_a_problem(tmp_path: Path, clean: Path) -> None:
    content = (clean / "append-time-0" / LOG_NAME).read_bytes()
    log = tmp_path / LOG_NAME
    log.write_bytes(content + content)
    (problem,) = problems_of(log)
    assert "offset 0 again, 10 or more is due" in problem.what
    early = tmp_path / "00000000000000000005.log"
    early.write_bytes(content)
    (problem,) = problems_of(early)
    assert "before the segment's base" in problem.what


def test_segments_that_overlap_are_a_problem(copy_of: Copier) -> None:
    folder = copy_of("idempotent-0")
    shutil.copy(folder / "00000000000000000000.log", folder / "00000000000000000150.log")
    found = problems_of(folder)
    assert any("ends at offset 199, but the next one begins at 150" in p.what for p in found)


@pytest.mark.parametrize("segment", [0, 200, 400])
def test_an_offset_index_is_checked_against_its_log(copy_of: Copier, segment: int) -> None:
    """A changed byte is found, or the entry still leads to the batch with its offset."""
    index = copy_of("idempotent-0") / f"{segment:020d}.index"
    content = index.read_bytes()
    assert len(content) >= 8
    for place, damaged in flips(content):
        index.write_bytes(damaged)
        found = problems_of(index)
        if place % 8 >= 4:
            assert found, place
        elif not found:
            batches = {b.position: b for b in batches_of(index.with_suffix(".log"))}
            for entry in inspect(index):
                if isinstance(entry, OffsetIndexEntryFound):
                    batch = batches[entry.position]
                    assert batch.base_offset <= entry.offset <= batch.last_offset


def test_a_time_index_is_checked_against_its_log(copy_of: Copier) -> None:
    index = copy_of("idempotent-0") / "00000000000000000000.timeindex"
    content = index.read_bytes()
    for place, damaged in flips(content):
        if place % 12 >= 8 and damaged[place] < 128 and place % 12 == 11:
            # The last digits of the offset: another record of the same batch is as good.
            continue
        index.write_bytes(damaged)
        assert problems_of(index), place


def test_a_transaction_index_is_checked_against_its_log(copy_of: Copier) -> None:
    index = copy_of("txns-0") / "00000000000000000000.txnindex"
    content = index.read_bytes()
    for place, damaged in flips(content):
        if place % 34 >= 26:
            # The last stable offset at that time; no other file records it.
            continue
        index.write_bytes(damaged)
        assert problems_of(index), place


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_cut_within_an_entry_is_a_problem(copy_of: Copier, suffix: str) -> None:
    name = "txns-0" if suffix == ".txnindex" else "idempotent-0"
    index = copy_of(name) / f"{0:020d}{suffix}"
    index.write_bytes(index.read_bytes()[:-3])
    (problem,) = problems_of(index)
    assert "less than an entry" in problem.what


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_without_its_log_is_a_problem(copy_of: Copier, suffix: str) -> None:
    index = copy_of("txns-0") / f"{0:020d}{suffix}"
    index.with_suffix(".log").unlink()
    assert "the log of this index is missing" in problems_of(index)[0].what


def test_every_changed_byte_of_a_producer_snapshot_is_found(copy_of: Copier) -> None:
    snapshot = copy_of("txns-1") / "00000000000000000038.snapshot"
    content = snapshot.read_bytes()
    assert problems_of(snapshot) == []
    for place, damaged in flips(content):
        snapshot.write_bytes(damaged)
        assert problems_of(snapshot), place


def test_a_producer_snapshot_of_later_offsets_than_its_name_is_a_problem(copy_of: Copier) -> None:
    snapshot = copy_of("txns-1") / "00000000000000000038.snapshot"
    renamed = snapshot.rename(snapshot.with_name(f"{20:020d}.snapshot"))
    assert "before 20" in problems_of(renamed)[0].what


@pytest.mark.parametrize(
    "name",
    [
        "codecs-0/leader-epoch-checkpoint",
        "codecs-0/partition.metadata",
        "recovery-point-offset-checkpoint",
        "meta.properties",
        ".kafka_cleanshutdown",
        "__cluster_metadata-0/quorum-state",
    ],
)
def test_a_small_file_that_was_cut_is_a_problem(clean: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / Path(name).name
    path.write_bytes((clean / name).read_bytes()[:-4])
    (problem,) = problems_of(path)
    assert problem.remedy


def test_a_metadata_snapshot_must_be_complete(copy_of: Copier) -> None:
    snapshot = copy_of("__cluster_metadata-0") / "00000000000000000066-0000000001.checkpoint"
    last = batches_of(snapshot)[-1]
    assert problems_of(snapshot) == []
    snapshot.chmod(0o600)
    snapshot.write_bytes(snapshot.read_bytes()[: last.position])
    (problem,) = problems_of(snapshot)
    assert "does not end with its footer" in problem.what
    snapshot.write_bytes(b"")
    assert "empty" in problems_of(snapshot)[0].what


def test_a_log_that_ends_before_its_recovery_point_has_lost_records(
    clean: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "d"
    shutil.copytree(clean, directory)
    log = directory / "txns-0" / LOG_NAME
    last = batches_of(log)[-1]
    log.write_bytes(log.read_bytes()[: last.position])
    found = problems_of(directory)
    assert any("was flushed up to 43, but its log ends at" in problem.what for problem in found)


def test_a_brokers_note_of_damage_is_a_problem(copy_of: Copier) -> None:
    folder = copy_of("codecs-0")
    (folder / "damage-found").write_text("the checksum at 7 does not match")
    (problem,) = problems_of(folder)
    assert "the checksum at 7 does not match" in problem.what


def test_an_unknown_file_is_a_remark_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    start, remark, end = inspect(tmp_path / "notes.txt")
    assert isinstance(start, FileStart)
    assert start.kind is FileKind.UNKNOWN
    assert isinstance(remark, Remark)
    assert isinstance(end, FileEnd)
