"""An inspection reports healthy files correctly and survives any bytes."""

import hashlib
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.inspections import (
    DEEP,
    HEADER_BYTES,
    LOG_NAME,
    inspect,
    problems_of,
    remarks_of,
    with_crc,
)
from storage.samples import expected_partitions, expected_topics, unpack

from moldau.storage.inspection import Decoding, InspectionOptions
from moldau.storage.inspection.items import (
    BatchFound,
    CheckpointOffsetFound,
    DirectoryEnd,
    EpochFound,
    FileEnd,
    FileStart,
    OffsetIndexEntryFound,
    PartitionFound,
    PropertyFound,
    RecordFound,
    Remark,
    TimeIndexEntryFound,
)
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset, TopicPartition, uuid_text

LEADER_EPOCH = range(12, 16)
BASE_OFFSET = range(8)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("dirty", tmp_path_factory.mktemp("dirty"))


# Files of Apache Kafka


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_apaches_directories_have_no_problem(which: str, clean: Path, dirty: Path) -> None:
    assert problems_of(clean if which == "clean" else dirty, DEEP) == []


def test_a_directory_shows_whether_it_was_stopped_cleanly(clean: Path, dirty: Path) -> None:
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
    assert CheckpointOffsetFound("idempotent", 0, Offset(500)) in found
    assert EpochFound(LeaderEpoch(2), Offset(200)) in inspect(
        clean / "codecs-0" / "leader-epoch-checkpoint"
    )
    assert PropertyFound("leaderEpoch", 2) in inspect(
        clean / "__cluster_metadata-0" / "quorum-state"
    )
    assert PropertyFound("brokerEpoch", 204) in inspect(clean / ".kafka_cleanshutdown")


def test_zeros_allocated_ahead_are_a_remark_and_not_a_problem(dirty: Path) -> None:
    index = dirty / "idempotent-0" / "00000000000000000400.index"
    found = inspect(index)
    assert [type(item) for item in found[1:3]] == [OffsetIndexEntryFound, Remark]
    assert index.stat().st_size == 1024 * 1024


def test_a_deleted_segments_index_is_checked_against_the_deleted_log(dirty: Path) -> None:
    folder = dirty / "compacted-0"
    start, entry, *_ = inspect(folder / "00000000000000000050.timeindex.deleted")
    assert isinstance(start, FileStart)
    assert ("state", "waits for deletion") in start.facts
    assert isinstance(entry, TimeIndexEntryFound)
    assert problems_of(folder / "00000000000000000050.timeindex.deleted") == []


def test_internal_topics_are_decoded_by_the_name_of_their_directory(clean: Path) -> None:
    found = {
        item.decoded_key.name
        for item in inspect(clean / "__consumer_offsets-0", DEEP)
        if isinstance(item, RecordFound) and item.decoded_key
    }
    assert {"OffsetCommitKey", "GroupMetadataKey", "ConsumerGroupMetadataKey", "COMMIT"} <= found


def test_a_chosen_decoding_overrides_the_name_of_the_directory(clean: Path, tmp_path: Path) -> None:
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


def test_secrets_stay_hidden_unless_requested(clean: Path) -> None:
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


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOG_NAME)
    with pytest.raises(OSError, match="Not a regular file"):
        inspect(tmp_path / LOG_NAME)


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
        # A header that claims the whole file, followed by zeros only.
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
    """Batches with a valid checksum around damaged records of an internal topic."""
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
