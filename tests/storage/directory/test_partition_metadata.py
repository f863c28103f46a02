"""partition.metadata: the topic id of a partition directory."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import expected_topics, unpack

from moldau.storage.directory.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_topic_id,
    write_topic_id,
)
from moldau.storage.disk.failures import CorruptCheckpointError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Uuid, parse_uuid

PATH = Path("/") / PARTITION_METADATA_FILE
TOPIC_ID = parse_uuid("CKW5wMWpTrGVk8aPB7q0QA")
CONTENT = b"version: 0\ntopic_id: CKW5wMWpTrGVk8aPB7q0QA"


def read(content: bytes) -> Uuid | None:
    disk = SimulatedDisk()
    disk.plant(PATH, content)
    return read_topic_id(disk, PATH)


@settings(deadline=None, max_examples=100)
@given(st.binary(min_size=16, max_size=16).filter(any).map(Uuid))
def test_topic_ids_round_trip(topic_id: Uuid) -> None:
    disk = SimulatedDisk()
    write_topic_id(disk, PATH, topic_id)
    assert read_topic_id(disk, PATH) == topic_id


def test_the_format_is_kafkas() -> None:
    disk = SimulatedDisk()
    write_topic_id(disk, PATH, TOPIC_ID)
    assert disk.files() == {str(PATH): CONTENT}


def test_no_file_is_no_topic_id() -> None:
    assert read_topic_id(SimulatedDisk(), PATH) is None


def test_a_later_version_is_read_as_kafka_reads_it() -> None:
    assert read(CONTENT.replace(b"0\n", b"1\n") + b"\nmore: 1\n") == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: CKW5wMWpTrGVk8aPB7q0QA",
        b"topic_id: CKW5wMWpTrGVk8aPB7q0QA\nversion: 0",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: CKW5wMWpTrGVk8aPB7q0",
        b"version: 0\ntopic_id: CKW5wMWpTrGVk8aPB7q0QAAA",
        CONTENT + b"\n" + CONTENT,
        b"\xff" * 43,
    ],
)
def test_a_broken_file_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=str(PATH)):
        read(content)


def test_a_truncated_file_is_refused() -> None:
    for damaged in cuts(CONTENT):
        with pytest.raises(CorruptCheckpointError):
            read(damaged)


def test_a_damaged_file_is_refused_or_read_literally() -> None:
    for damaged in all_damages(CONTENT):
        try:
            topic_id = read(damaged)
        except CorruptCheckpointError:
            continue
        # The last character has four unused bits; the rest is the id.
        shown = damaged.split(b"topic_id: ")[1].split(b"\n")[0].decode()
        assert topic_id == parse_uuid(shown)


def test_kafkas_files_contain_the_ids_that_clients_saw(tmp_path: Path) -> None:
    filesystem = DiskFileSystem()
    root = unpack("clean", tmp_path)
    for name, topic in expected_topics().items():
        for number in topic.partitions:
            path = root / f"{name}-{number}" / PARTITION_METADATA_FILE
            before = path.read_bytes()
            assert read_topic_id(filesystem, path) == topic.topic_id
            write_topic_id(filesystem, path, topic.topic_id)
            assert path.read_bytes() == before
