"""An inspection tells the truth about healthy files, finds damage, and survives any bytes."""

import hashlib
import shutil
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.samples import expected_partitions, expected_topics, unpack

from moldau.protocol.batch_builder import build_batch
from moldau.protocol.batches import Record
from moldau.storage.inspection import Decoding, InspectionOptions, inspect_path
from moldau.storage.inspection_items import (
    BatchFound,
    CheckpointOffsetFound,
    DirectoryEnd,
    EpochFound,
    FileEnd,
    FileKind,
    FileStart,
    Item,
    OffsetIndexEntryFound,
    PartitionFound,
    Problem,
    PropertyFound,
    RecordFound,
    Remark,
    TimeIndexEntryFound,
)
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import TopicPartition, uuid_text

SHALLOW = InspectionOptions()
DEEP = InspectionOptions(records=True)
LOG_NAME = "00000000000000000000.log"
HEADER_BYTES = 61
LEADER_EPOCH = range(12, 16)
BASE_OFFSET = range(8)


def inspect(path: Path, options: InspectionOptions = SHALLOW) -> list[Item]:
    return list(inspect_path(path, options))


def problems_of(path: Path, options: InspectionOptions = SHALLOW) -> list[Problem]:
    return [item for item in inspect(path, options) if isinstance(item, Problem)]


def remarks_of(path: Path) -> list[Remark]:
    return [item for item in inspect(path) if isinstance(item, Remark)]


def batches_of(path: Path) -> list[BatchFound]:
    return [item for item in inspect(path) if isinstance(item, BatchFound)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("dirty", tmp_path_factory.mktemp("dirty"))


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


# What Apache Kafka wrote


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_apaches_directories_have_no_problem(which: str, clean: Path, dirty: Path) -> None:
    assert problems_of(clean if which == "clean" else dirty, DEEP) == []


def test_a_directory_says_whether_it_was_stopped_cleanly(clean: Path, dirty: Path) -> None:
    assert remarks_of(clean) == []
    (remark,) = remarks_of(dirty)
    assert "no clean-shutdown marker" in remark.what


def test_the_summary_has_the_offsets_that_clients_saw(clean: Path) -> None:
    rows = {row.name: row for row in inspect(clean) if isinstance(row, PartitionFound)}
    for partition, expected in expected_partitions().items():
        row = rows[str(partition)]
        assert (row.start_offset, row.end_offset) == (expected.log_start, expected.high_watermark)
    assert rows["compacted-0"].segments == 2
    assert rows["idempotent-0"].segments == 3


@pytest.mark.parametrize("partition", sorted(expected_partitions()), ids=str)
def test_every_record_is_what_clients_read(clean: Path, partition: TopicPartition) -> None:
    expected = expected_partitions()[partition]
    found = [
        (
            item.offset,
            item.timestamp,
            None if item.key is None else item.key.decode(),
            None if item.value is None else hashlib.sha256(item.value).hexdigest()[:16],
            None if item.value is None else len(item.value),
            tuple((name, None if v is None else v.decode()) for name, v in item.headers),
        )
        for item in inspect(clean / str(partition), DEEP)
        if isinstance(item, RecordFound) and not item.is_control
    ]
    assert [one for one in found if one[0] >= expected.log_start] == [
        tuple(record) for record in expected.records
    ]


def test_partition_metadata_has_the_topics_id(clean: Path) -> None:
    for name, topic in expected_topics().items():
        found = inspect(clean / f"{name}-0" / "partition.metadata")
        assert PropertyFound("topic_id", uuid_text(topic.topic_id)) in found


def test_checkpoints_and_epochs_are_listed(clean: Path) -> None:
    found = inspect(clean / "recovery-point-offset-checkpoint")
    assert CheckpointOffsetFound("idempotent", 0, 500) in found
    assert EpochFound(2, 200) in inspect(clean / "codecs-0" / "leader-epoch-checkpoint")
    assert PropertyFound("leaderEpoch", 2) in inspect(
        clean / "__cluster_metadata-0" / "quorum-state"
    )
    assert PropertyFound("brokerEpoch", 204) in inspect(clean / ".kafka_cleanshutdown")


def test_zeros_allocated_ahead_are_remarked_and_not_a_problem(dirty: Path) -> None:
    index = dirty / "idempotent-0" / "00000000000000000400.index"
    found = inspect(index)
    assert [type(item) for item in found[1:3]] == [OffsetIndexEntryFound, Remark]
    assert index.stat().st_size == 1024 * 1024


def test_a_deleted_segments_index_is_held_against_the_deleted_log(dirty: Path) -> None:
    folder = dirty / "compacted-0"
    start, entry, *_ = inspect(folder / "00000000000000000050.timeindex.deleted")
    assert isinstance(start, FileStart)
    assert ("state", "waits for deletion") in start.facts
    assert isinstance(entry, TimeIndexEntryFound)
    assert problems_of(folder / "00000000000000000050.timeindex.deleted") == []


def test_internal_topics_are_decoded_by_their_directorys_name(clean: Path) -> None:
    found = {
        item.decoded_key.name
        for item in inspect(clean / "__consumer_offsets-0", DEEP)
        if isinstance(item, RecordFound) and item.decoded_key
    }
    assert {"OffsetCommitKey", "GroupMetadataKey", "ConsumerGroupMetadataKey", "COMMIT"} <= found


def test_a_chosen_decoding_wins_over_the_directorys_name(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    shutil.copy(clean / "__transaction_state-0" / LOG_NAME, path)
    chosen = InspectionOptions(records=True, decoding=Decoding.TRANSACTIONS)
    names = {
        item.decoded_value.name
        for item in inspect(path, chosen)
        if isinstance(item, RecordFound) and item.decoded_value
    }
    assert names == {"TransactionLogValue"}
    wrong = InspectionOptions(records=True, decoding=Decoding.METADATA)
    assert "unknown metadata frame version" in problems_of(path, wrong)[0].what


def test_secrets_stay_hidden_unless_asked_for(clean: Path) -> None:
    def stored_keys(options: InspectionOptions) -> set[str]:
        return {
            item.decoded_value.fields["storedKey"]
            for item in inspect(clean / "__cluster_metadata-0", options)
            if isinstance(item, RecordFound)
            and item.decoded_value
            and item.decoded_value.name == "UserScramCredentialRecord"
        }

    assert stored_keys(DEEP) == {"***"}
    (shown,) = stored_keys(InspectionOptions(records=True, secrets=True))
    assert len(shown) == 44


# Damage


def flips(content: bytes) -> Iterator[tuple[int, bytes]]:
    for place, byte in enumerate(content):
        yield place, content[:place] + bytes([byte ^ 0x40]) + content[place + 1 :]


def test_every_changed_byte_of_a_log_is_found(copy_of: Copier) -> None:
    """Except where nothing vouches for a byte: leader epochs, and the last batch's base offset."""
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
    # The length: nobody can know where the next batch begins, except by looking for it.
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
    assert "cuts them off" in problem.remedy


def test_old_message_formats_are_named(tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(struct.pack(">qiIbb", 0, 100, 7, 1, 0) + bytes(100))
    (problem,) = problems_of(log)
    assert "message format 1, which Kafka 4 no longer reads" in problem.what


def test_records_that_a_producer_wrote_badly_are_a_problem(tmp_path: Path) -> None:
    record = Record(0, 1, b"k", b"v", ())
    log = tmp_path / LOG_NAME
    content = bytearray(build_batch([record]))
    # The record's length lies, under a checksum that fits.
    content[HEADER_BYTES] += 40
    log.write_bytes(with_crc(content))
    assert problems_of(log) == []
    (problem,) = problems_of(log, DEEP)
    assert "the records of the batch at offset 0 are broken" in problem.what


def with_crc(batch: bytearray) -> bytes:
    import crc32c

    batch[17:21] = struct.pack(">I", crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


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
def test_an_offset_index_is_held_against_its_log(copy_of: Copier, segment: int) -> None:
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


def test_a_time_index_is_held_against_its_log(copy_of: Copier) -> None:
    index = copy_of("idempotent-0") / "00000000000000000000.timeindex"
    content = index.read_bytes()
    for place, damaged in flips(content):
        if place % 12 >= 8 and damaged[place] < 128 and place % 12 == 11:
            # The last digits of the offset: another record of the same batch is as good.
            continue
        index.write_bytes(damaged)
        assert problems_of(index), place


def test_a_transaction_index_is_held_against_its_log(copy_of: Copier) -> None:
    index = copy_of("txns-0") / "00000000000000000000.txnindex"
    content = index.read_bytes()
    for place, damaged in flips(content):
        if place % 34 >= 26:
            # The last stable offset at that time; nothing else remembers it.
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
    assert "no log beside" in problems_of(index)[0].what


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


def test_what_a_broker_noted_about_damage_is_a_problem(copy_of: Copier) -> None:
    folder = copy_of("codecs-0")
    (folder / "damage-found").write_text("the checksum at 7 does not match")
    (problem,) = problems_of(folder)
    assert "the checksum at 7 does not match" in problem.what


def test_a_stranger_is_remarked_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    start, remark, end = inspect(tmp_path / "notes.txt")
    assert isinstance(start, FileStart)
    assert start.kind is FileKind.UNKNOWN
    assert isinstance(remark, Remark)
    assert isinstance(end, FileEnd)


# Limits


def test_limits_stop_a_file_early(clean: Path) -> None:
    log = clean / "txns-0" / LOG_NAME
    assert len([i for i in inspect(log) if isinstance(i, BatchFound)]) == 15
    few = inspect(log, InspectionOptions(rows_max=3))
    assert len([i for i in few if isinstance(i, BatchFound)]) == 3
    few = inspect(log, InspectionOptions(records=True, rows_max=7))
    assert len([i for i in few if isinstance(i, RecordFound)]) == 7
    few = inspect(log, InspectionOptions(bytes_max=200))
    assert len([i for i in few if isinstance(i, BatchFound)]) == 2


def test_a_huge_damaged_file_takes_little_memory(tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    size_bytes = 192 * 1024 * 1024
    with log.open("wb") as file:
        # A header that claims the whole file, and then nothing but zeros.
        file.write(struct.pack(">qiibIhi", 0, size_bytes - 12, 0, 2, 7, 0, 0) + bytes(34))
        file.truncate(size_bytes)
    tracemalloc.start()
    found = problems_of(log, DEEP)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found
    assert peak_bytes < 40 * 1024 * 1024


NAMES = [
    LOG_NAME,
    f"{0:020d}.index",
    f"{0:020d}.timeindex",
    f"{0:020d}.txnindex",
    f"{9:020d}.snapshot",
    f"{9:020d}-0000000001.checkpoint",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
    "quorum-state",
]


@settings(deadline=None, max_examples=300)
@given(name=st.sampled_from(NAMES), content=st.binary(max_size=300), records=st.booleans())
def test_no_bytes_make_an_inspection_fail(name: str, content: bytes, records: bool) -> None:
    disk = SimulatedDisk()
    disk.plant(Path("/d/t-0") / LOG_NAME, b"")
    disk.plant(Path("/d/t-0") / name, content)
    items = inspect(Path("/d/t-0"), InspectionOptions(records=records, filesystem=disk))
    assert isinstance(items[-1], DirectoryEnd)
    assert any(isinstance(item, FileEnd) for item in items)


@settings(deadline=None, max_examples=200)
@given(
    place=st.integers(0, 2328),
    noise=st.binary(min_size=1, max_size=40),
    topic=st.sampled_from(["__consumer_offsets", "__transaction_state", "__cluster_metadata"]),
)
def test_no_records_make_a_decoding_fail(clean: Path, place: int, noise: bytes, topic: str) -> None:
    """Batches with a right checksum around damaged records of an internal topic."""
    content = bytearray((clean / "__consumer_offsets-0" / LOG_NAME).read_bytes())
    content[place : place + len(noise)] = noise
    position = 0
    while position + HEADER_BYTES <= len(content):
        (length,) = struct.unpack_from(">i", content, position + 8)
        if not 49 <= length <= len(content) - position - 12:
            break
        end = position + 12 + length
        content[position:end] = with_crc(content[position:end])
        position = end
    disk = SimulatedDisk()
    disk.plant(Path(f"/d/{topic}-0") / LOG_NAME, bytes(content))
    items = inspect(Path(f"/d/{topic}-0"), InspectionOptions(records=True, filesystem=disk))
    assert any(isinstance(item, FileEnd) for item in items)
