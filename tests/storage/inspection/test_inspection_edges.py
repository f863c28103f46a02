"""Inspections of files that are rare, and of files that only another program could have written."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from storage.inspections import DEEP, HEADER_BYTES, LOG_NAME, inspect, problems_of, with_crc
from storage.samples import unpack

from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.inspection import InspectionOptions
from moldau.storage.inspection.items import (
    DirectoryStart,
    FileEnd,
    Item,
    OffsetIndexEntryFound,
    Problem,
    PropertyFound,
    RecordFound,
    Remark,
)
from moldau.storage.inspection.options import Decoding
from moldau.storage.inspection.records import RecordDecoder
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import ProducerEpoch

HERE = Path("/d/t-0")
CONTROL_KEY = struct.Struct(">hh")
ABORTED_ENTRY = struct.Struct(">hqqqq")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


def planted(name: str, content: bytes, records: bool = False) -> list[Item]:
    """The items of one file, beside an empty log."""
    disk = SimulatedDisk()
    disk.plant(HERE / LOG_NAME, b"")
    disk.plant(HERE / name, content)
    return inspect(HERE / name, InspectionOptions(filesystem=disk, records=records))


def texts(items: list[Item]) -> list[str]:
    return [item.what for item in items if isinstance(item, Problem | Remark)]


# Records


def control_batch(control_type: int, value: bytes | None) -> bytes:
    record = Record(0, 1, CONTROL_KEY.pack(0, control_type), value)
    return build_batch([record], BatchOptions(is_control=True))


def test_an_unknown_control_record_is_shown_with_its_type() -> None:
    items = planted(LOG_NAME, control_batch(77, b"\0\0"), records=True)
    (record,) = [item for item in items if isinstance(item, RecordFound)]
    assert record.decoded_key is not None
    assert record.decoded_key.name == "UnknownControl"
    assert texts(items) == []


def test_a_control_record_without_a_value_is_a_problem() -> None:
    (problem,) = texts(planted(LOG_NAME, control_batch(2, None), records=True))
    assert "LeaderChange has no value" in problem


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"\x01\xff\x7f\x00", "unknown metadata record type 16383"),
        (b"\x01\xff", "a number is cut off or too long"),
        (b"\x01\xff\xff\xff\xff\xff\xff", "a number is cut off or too long"),
        (None, "a metadata record without a value"),
    ],
)
def test_broken_metadata_records_are_explained(value: bytes | None, complaint: str) -> None:
    decoder = RecordDecoder(Decoding.METADATA, secrets=False)
    found = decoder.decode(None, value, is_control=False)
    assert complaint in str(found.complaint)


def test_a_coordinators_record_needs_a_key() -> None:
    decoder = RecordDecoder(Decoding.OFFSETS, secrets=False)
    found = decoder.decode(None, b"value", is_control=False)
    assert found.complaint == "a coordinator's record without a key"


def test_records_of_users_are_not_decoded() -> None:
    decoder = RecordDecoder(Decoding.NONE, secrets=False)
    assert not decoder.is_needed
    found = decoder.decode(b"key", b"value", is_control=False)
    assert (found.key, found.value, found.complaint) == (None, None, None)


def test_an_end_of_a_transaction_is_decoded() -> None:
    marker = EndTransactionMarker(control_type=ControlType.ABORT, coordinator_epoch=9)
    origin = MarkerOrigin(producer_id=7, producer_epoch=ProducerEpoch(1))
    items = planted(LOG_NAME, end_transaction_marker(marker, origin, 5), records=True)
    (record,) = [item for item in items if isinstance(item, RecordFound)]
    assert record.decoded_value is not None
    assert record.decoded_value.fields == {"coordinatorEpoch": 9}


def forged(change: Callable[[bytearray], None]) -> bytes:
    """A batch of two records, changed beneath a checksum that matches."""
    content = bytearray(build_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")]))
    change(content)
    return with_crc(content)


def repeated_offset(content: bytearray) -> None:
    # The second record's offset delta, as a varint: 1 becomes 0.
    second = HEADER_BYTES + 1 + content[HEADER_BYTES] // 2
    content[second + 3] = 0


def test_a_record_offset_that_does_not_rise_is_a_problem() -> None:
    assert texts(planted(LOG_NAME, forged(lambda _: None), records=True)) == []
    (problem,) = texts(planted(LOG_NAME, forged(repeated_offset), records=True))
    assert "record offset 0 in a batch from 0 to 1, after 0" in problem


# Indexes


def test_entries_of_a_transaction_index_must_be_in_order() -> None:
    entries = [(0, 1, 0, 9, 0), (0, 2, 3, 8, 0), (0, 3, 10, 12, 14), (5, 4, 13, 14, 0)]
    content = b"".join(ABORTED_ENTRY.pack(*each) for each in entries)
    disk = SimulatedDisk()
    disk.plant(HERE / f"{0:020d}.txnindex", content)
    items = inspect(HERE / f"{0:020d}.txnindex", InspectionOptions(filesystem=disk))
    assert texts(items) == [
        "the log of this index is missing",
        "abort at 8 does not follow 9",
        "last stable offset 14 for an abort at 12",
        "unknown version 5",
    ]


def test_a_transaction_index_must_name_the_first_batch(clean: Path) -> None:
    source = clean / "txns-0"
    index = (source / f"{0:020d}.txnindex").read_bytes()
    version, producer_id, first, last, stable = ABORTED_ENTRY.unpack_from(index)
    disk = SimulatedDisk()
    disk.plant(HERE / LOG_NAME, (source / LOG_NAME).read_bytes())
    disk.plant(
        HERE / f"{0:020d}.txnindex",
        ABORTED_ENTRY.pack(version, producer_id, first + 1, last, stable),
    )
    items = inspect(HERE / f"{0:020d}.txnindex", InspectionOptions(filesystem=disk))
    (problem,) = texts(items)
    assert f"no batch of producer {producer_id} that begins a transaction" in problem


def test_a_limit_stops_an_index_early(clean: Path) -> None:
    index = clean / "idempotent-0" / f"{0:020d}.index"
    whole = [item for item in inspect(index) if isinstance(item, OffsetIndexEntryFound)]
    assert len(whole) > 1
    items = inspect(index, InspectionOptions(rows_max=1))
    assert [item for item in items if isinstance(item, OffsetIndexEntryFound)] == whole[:1]
    assert texts(items) == ["stopped here, as requested"]


# Small files


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("quorum-state", b"[1]", "not a JSON object"),
        ("quorum-state", b'{"leaderId":1,"leaderEpoch":"x","votedId":1}', "no number in leaderEp"),
        (".kafka_cleanshutdown", b'{"version":0}', "no number in brokerEpoch"),
        ("segment.log", b"", "the name does not begin with the segment's base offset"),
        ("segment.snapshot", b"", "the name does not begin with the segment's base offset"),
    ],
)
def test_unusable_content_is_a_problem(name: str, content: bytes, complaint: str) -> None:
    assert any(complaint in text for text in texts(planted(name, content)))


def test_properties_of_the_oldest_format_need_not_be_complete() -> None:
    items = planted("meta.properties", b"version=0\n")
    found = [(item.name, item.value) for item in items if isinstance(item, PropertyFound)]
    assert found == [("version", 0)]
    assert texts(items) == []


def test_a_file_of_an_impossible_size_is_not_read(tmp_path: Path) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    with checkpoint.open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    (problem,) = problems_of(checkpoint)
    assert problem.what.startswith("too large for this kind of file (offset checkpoint)")


def test_a_lock_has_no_content_to_check() -> None:
    items = planted(".lock", b"whatever")
    assert texts(items) == []
    assert isinstance(items[-1], FileEnd)
    assert items[-1].problems == 0


def test_an_inspection_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="creates no files"):
        DEEP.filesystem.open(tmp_path / "new", create=True)
    assert list(tmp_path.iterdir()) == []


# Directories


def test_a_directory_reports_what_is_wrong_at_its_top(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "quarantine").mkdir()
    (tmp_path / "t-0" / LOG_NAME).write_bytes(b"")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"garbage")
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    items = inspect(tmp_path)
    assert isinstance(items[0], DirectoryStart)
    found = texts(items)
    assert any("there is no meta.properties" in text for text in found)
    assert any(
        isinstance(item, Problem) and item.path.name == "log-start-offset-checkpoint"
        for item in items
    )


def test_files_that_cannot_be_read_do_not_end_an_inspection(tmp_path: Path) -> None:
    """A file that is not regular, at the top and in a partition; the others are still inspected."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / LOG_NAME).write_bytes(b"")
    os.mkfifo(tmp_path / "t-0" / f"{0:020d}.index")
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    (tmp_path / "meta.properties").write_bytes(b"version=0\n")
    os.mkfifo(tmp_path / "notes")
    found = {problem.path.name: problem.what for problem in problems_of(tmp_path)}
    assert "cannot be read" in found[f"{0:020d}.index"]
    assert "cannot be read" in found["notes"]


def test_segments_that_a_recovery_put_aside_are_mentioned(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    (partition / "quarantine").mkdir(parents=True)
    (partition / "unrelated").mkdir()
    (partition / LOG_NAME).write_bytes(b"")
    assert texts(inspect(partition)) == ["segments that a recovery found damaged are kept here"]


def test_progress_is_reported_in_bytes(clean: Path) -> None:
    log = clean / "txns-0" / LOG_NAME
    seen: list[int] = []
    inspect(log, InspectionOptions(on_progress=seen.append))
    assert sum(seen) >= log.stat().st_size
