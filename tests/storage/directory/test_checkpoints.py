"""Offset checkpoints: Kafka's text format, replaced atomically, broken ones refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import expected_partitions, unpack

from moldau.storage.directory.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    is_topic_name,
    read_offsets,
    write_offsets,
)
from moldau.storage.disk.failures import CorruptCheckpointError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from moldau.types import Offset, TopicPartition

PATH = Path("/") / RECOVERY_POINT_FILE

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(is_topic_name)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1).map(Offset),
    max_size=20,
)
SAMPLE = {
    TopicPartition("orders", 0): Offset(150),
    TopicPartition("orders", 11): Offset(0),
    TopicPartition("a.b_c-d", 2): Offset(2**40),
}


def planted(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.plant(PATH, content)
    return disk


@settings(deadline=None, max_examples=150)
@given(OFFSETS)
def test_offsets_round_trip(offsets: dict[TopicPartition, Offset]) -> None:
    disk = SimulatedDisk()
    write_offsets(disk, PATH, offsets)
    assert read_offsets(disk, PATH) == offsets


def test_the_format_is_kafkas() -> None:
    disk = SimulatedDisk()
    write_offsets(disk, PATH, SAMPLE)
    text = b"0\n3\norders 0 150\norders 11 0\na.b_c-d 2 1099511627776\n"
    assert disk.files() == {str(PATH): text}


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "made but never filled"])
def test_no_checkpoint_is_no_offsets(content: bytes | None) -> None:
    disk = SimulatedDisk() if content is None else planted(content)
    assert read_offsets(disk, PATH) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1\n0\n", "unknown version '1'"),
        (b"x\n0\n", "unknown version 'x'"),
        (b"0\n", "the count is missing"),
        (b"0\n2\nt 0 1\n", "1 entries where '2' were announced"),
        (b"0\n0\nt 0 1\n", "1 entries where '0' were announced"),
        (b"0\n-1\n", "announced"),
        (b"0\n1\nt 0 1", "the last line is cut off"),
        (b"0\n1\nt 0\n", "not an entry: 't 0'"),
        (b"0\n1\nt 0 1 2\n", "not an entry"),
        (b"0\n1\nt 0 -1\n", "not an entry"),
        (b"0\n1\nt -1 0\n", "not an entry"),
        (b"0\n1\nt 0 9223372036854775808\n", "not an entry"),
        (b"0\n1\nt 2147483648 0\n", "not an entry"),
        (b"0\n1\n../t 0 1\n", "not an entry"),
        (b"0\n1\n.. 0 1\n", "not an entry"),
        ("0\n1\nt 0 \u0661\n".encode(), "not an entry"),
        (b"0\n2\nt 0 1\nt 0 2\n", "t-0 appears twice"),
        (b"\xff\xfe\n", "not text"),
        (b"\0" * 512, "cut off"),
    ],
)
def test_a_broken_file_is_refused_with_its_path_and_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError) as raised:
        read_offsets(planted(content), PATH)
    assert str(raised.value).startswith(f"{PATH}: ")
    assert reason in raised.value.reason
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_damage_is_refused_or_leaves_a_file_that_kafka_could_have_written() -> None:
    disk = SimulatedDisk()
    write_offsets(disk, PATH, SAMPLE)
    for damaged in all_damages(disk.files()[str(PATH)]):
        disk = planted(damaged)
        try:
            offsets = read_offsets(disk, PATH)
        except CorruptCheckpointError:
            continue
        write_offsets(disk, PATH, offsets)
        assert disk.files()[str(PATH)] == damaged


def test_a_truncated_file_is_refused() -> None:
    disk = SimulatedDisk()
    write_offsets(disk, PATH, SAMPLE)
    for damaged in cuts(disk.files()[str(PATH)]):
        with pytest.raises(CorruptCheckpointError):
            read_offsets(planted(damaged), PATH)


def test_a_power_failure_at_any_moment_leaves_the_old_or_the_new_offsets() -> None:
    old, new = SAMPLE, {TopicPartition("orders", 0): Offset(151)}
    states = set()
    for crash_at in range(1, 7):
        disk = SimulatedDisk()
        write_offsets(disk, PATH, old)
        disk.crash_at(disk.effects + crash_at)
        finished = False
        try:
            write_offsets(disk, PATH, new)
            finished = True
        except SimulatedCrash:
            pass
        for _, left in disk.variants_after_crash():
            read = read_offsets(left, PATH)
            assert read == new if finished else read in (old, new)
            states.add(read == new)
            write_offsets(left, PATH, new)
            assert read_offsets(left, PATH) == new
    assert states == {True, False}


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-", "_"])
def test_kafkas_topic_names(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "\u00e4", "a\0"])
def test_invalid_topic_names(name: str) -> None:
    assert not is_topic_name(name)


@pytest.mark.parametrize(
    "name", [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE]
)
@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_kafkas_checkpoints_are_read_and_rewritten_to_the_byte(
    which: str, name: str, tmp_path: Path
) -> None:
    filesystem = DiskFileSystem()
    path = unpack("clean" if which == "clean" else "dirty", tmp_path) / name
    before = path.read_bytes()
    offsets = read_offsets(filesystem, path)
    assert offsets
    write_offsets(filesystem, path, offsets)
    assert path.read_bytes() == before


def test_kafkas_checkpoints_match_the_offsets_that_clients_saw(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    high_watermarks = read_offsets(DiskFileSystem(), root / HIGH_WATERMARK_FILE)
    log_starts = read_offsets(DiskFileSystem(), root / LOG_START_FILE)
    for name, partition in expected_partitions().items():
        assert high_watermarks[name] == partition.high_watermark
        assert log_starts.get(name, 0) == partition.log_start
