"""meta.properties: the owner of a log directory."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.file_damage import all_damages, cuts
from storage.samples import CLUSTER_ID, DIRECTORY_ID, unpack

from moldau.storage.directory.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from moldau.storage.disk.failures import CorruptCheckpointError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import BrokerId, Uuid

PATH = Path("/") / META_PROPERTIES_FILE
META = MetaProperties(cluster_id=CLUSTER_ID, node_id=BrokerId(1), directory_id=DIRECTORY_ID)
CONTENT = (
    b"#\nnode.id=1\ndirectory.id=2_nZJKebT_GUfGcRIDwReQ\nversion=1\n"
    b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
)


def read(content: bytes) -> MetaProperties:
    disk = SimulatedDisk()
    disk.plant(PATH, content)
    return read_meta_properties(disk, PATH)


def written(meta: MetaProperties) -> bytes:
    disk = SimulatedDisk()
    write_meta_properties(disk, PATH, meta)
    return disk.files()[str(PATH)]


@settings(deadline=None, max_examples=150)
@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    st.integers(0, 2**31 - 1).map(BrokerId),
    st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
)
def test_properties_round_trip(
    cluster_id: str, node_id: BrokerId, directory_id: Uuid | None
) -> None:
    meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
    assert read(written(meta)) == meta


def test_the_properties_are_kafkas_in_kafkas_order() -> None:
    assert written(META) == CONTENT


def test_special_characters_are_escaped_as_java_does() -> None:
    meta = MetaProperties(cluster_id=" a=b:c#d!e\\f g", node_id=BrokerId(1), directory_id=None)
    assert written(meta).endswith(b"cluster.id=\\ a\\=b\\:c\\#d\\!e\\\\f g\n")
    with pytest.raises(ValueError, match="printable ASCII"):
        written(MetaProperties(cluster_id="Moldáu", node_id=BrokerId(1), directory_id=None))


def test_other_spellings_that_java_reads() -> None:
    lines = ["! note", "  version : 1", "node.id 1", f"cluster.id\t=\t{CLUSTER_ID}", "", "x=y", ""]
    assert read("\r\n".join(lines).encode()) == MetaProperties(
        cluster_id=CLUSTER_ID, node_id=BrokerId(1), directory_id=None
    )


def test_version_0_names_the_broker_and_may_lack_everything() -> None:
    old = MetaProperties(version=0, cluster_id=None, node_id=BrokerId(7), directory_id=None)
    assert written(old) == b"#\nbroker.id=7\nversion=0\n"
    assert read(b"version=0\nbroker.id=7\n") == old
    nothing = MetaProperties(version=0, cluster_id=None, node_id=None, directory_id=None)
    assert read(written(nothing)) == nothing


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"#\n", "unknown version ''"),
        (b"version=2\nnode.id=1\ncluster.id=x\n", "unknown version '2'"),
        (b"version=one\n", "unknown version 'one'"),
        (b"version=1\nnode.id=1\n", "cluster.id or node.id is missing"),
        (b"version=1\ncluster.id=x\n", "cluster.id or node.id is missing"),
        (b"version=1\nnode.id=-1\ncluster.id=x\n", "node.id is not a number"),
        (b"version=0\nbroker.id=x\n", "broker.id is not a number"),
        (b"version=1\nnode.id=1\nnode.id=2\ncluster.id=x\n", "node.id appears twice"),
        (b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n", "not a Kafka UUID"),
        (b"version=1\nnode.id=1\ncluster.id=x", "the last line is cut off"),
        (b"version=1\nnode.id=1\ncluster.id=\\u0041\n", "not a property"),
        (b"version=1\nnode.id=1\ncluster.id=x\x00y\n", "not a property"),
        (b"\xff\xfe\x00\n", "not a property"),
    ],
)
def test_a_broken_file_is_refused_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError) as raised:
        read(content)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_truncated_file_is_refused() -> None:
    for damaged in cuts(CONTENT):
        with pytest.raises(CorruptCheckpointError):
            read(damaged)


def test_a_damaged_file_is_refused_or_keeps_its_lines() -> None:
    """One changed byte can go undetected only if it changes one value."""
    believed = 0
    for damaged in all_damages(CONTENT):
        try:
            meta = read(damaged)
        except CorruptCheckpointError:
            continue
        believed += 1
        same = [
            meta.cluster_id == META.cluster_id,
            meta.node_id == META.node_id,
            meta.directory_id == META.directory_id,
        ]
        assert sum(same) >= 2 or meta.version == 0
    assert believed


def test_kafkas_file_is_read(tmp_path: Path) -> None:
    path = unpack("clean", tmp_path) / META_PROPERTIES_FILE
    assert read_meta_properties(DiskFileSystem(), path) == META
    without_date = [line for line in path.read_bytes().splitlines(True) if b"UTC" not in line]
    assert b"".join(without_date) == CONTENT
