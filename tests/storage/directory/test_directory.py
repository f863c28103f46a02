"""A log directory: lock, identity, clean stop, names of partition directories, failure."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.samples import CLUSTER_ID, DIRECTORY_ID, NODE_ID, unpack

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import HIGH_WATERMARK_FILE, is_topic_name
from moldau.storage.directory.directory import (
    CLEAN_STOP_FILE,
    DirectoryKind,
    LogDirectory,
    PartitionDirectory,
    directory_name,
    format_directory,
    parse_directory_name,
)
from moldau.storage.directory.meta_properties import META_PROPERTIES_FILE, MetaProperties
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import (
    CorruptCheckpointError,
    DirectoryLockedError,
    DirectoryOfflineError,
    DiskFullError,
    ForeignDirectoryError,
)
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from moldau.types import BrokerId, Offset, TopicPartition, Uuid

ROOT = Path("/kafka")
META = MetaProperties(cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID), directory_id=DIRECTORY_ID)
UNIQUE = Uuid(bytes.fromhex("a1148b00fb10411a8b73544bf8cb1acb"))
ORDERS = TopicPartition("orders", 3)


def formatted(meta: MetaProperties = META) -> SimulatedDisk:
    disk = SimulatedDisk()
    format_directory(disk, ROOT, meta)
    return disk


def opened(filesystem: FileSystem, path: Path = ROOT) -> LogDirectory:
    return LogDirectory.open(filesystem, path, cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID))


# Identity and lock.


def test_a_formatted_directory_opens_and_knows_its_id() -> None:
    directory = opened(formatted())
    assert directory.meta == META
    assert directory.is_online
    assert directory.clean_stop_epoch is None
    directory.close()


def test_formatting_survives_a_power_failure_or_never_happened() -> None:
    disk = SimulatedDisk()
    format_directory(disk, ROOT, META)
    effects = disk.effects
    for _, left in disk.variants_after_crash():
        opened(left).close()
    for crash_at in range(1, effects + 1):
        disk = SimulatedDisk()
        disk.crash_at(crash_at)
        with pytest.raises(SimulatedCrash):
            format_directory(disk, ROOT, META)
        for _, left in disk.variants_after_crash():
            format_directory(left, ROOT, META)
            assert opened(left).meta == META


def test_parents_that_formatting_created_survive_a_power_failure_too() -> None:
    deep = Path("/new/and/deeper/data")
    disk = SimulatedDisk()
    format_directory(disk, deep, META)
    for _, after in disk.variants_after_crash():
        assert opened(after, deep).meta == META


def test_formatting_again_for_the_same_owner_is_allowed_and_otherwise_refused() -> None:
    disk = formatted()
    format_directory(disk, ROOT, META)
    other = MetaProperties(cluster_id="other", node_id=BrokerId(1), directory_id=DIRECTORY_ID)
    with pytest.raises(ForeignDirectoryError, match="already formatted"):
        format_directory(disk, ROOT, other)
    assert opened(disk).meta == META


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "reason"),
    [
        ("another", NODE_ID, f"belongs to cluster {CLUSTER_ID}, this node to cluster another"),
        (CLUSTER_ID, 2, "belongs to node 1, this is node 2"),
    ],
)
def test_a_foreign_directory_is_refused_and_left_unlocked(
    cluster_id: str, node_id: int, reason: str
) -> None:
    disk = formatted()
    with pytest.raises(ForeignDirectoryError, match=reason):
        LogDirectory.open(disk, ROOT, cluster_id=cluster_id, node_id=BrokerId(node_id))
    opened(disk).close()


def test_an_unformatted_directory_is_refused_and_not_touched() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    with pytest.raises(ForeignDirectoryError, match=r"no meta\.properties"):
        opened(disk)
    assert disk.list_directory(ROOT) == []


def test_a_directory_with_a_broken_identity_is_refused_and_left_unlocked() -> None:
    disk = formatted()
    disk.plant(ROOT / META_PROPERTIES_FILE, b"version=1\n")
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError):
            opened(disk)


def test_a_directory_from_before_directory_ids_gets_one() -> None:
    old = MetaProperties(cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID), directory_id=None)
    disk = formatted(old)
    directory = LogDirectory.open(
        disk, ROOT, cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID), new_directory_id=UNIQUE
    )
    assert directory.meta.directory_id == UNIQUE
    directory.close()
    assert opened(disk).meta.directory_id == UNIQUE


@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_two_nodes_cannot_have_one_directory(kind: str, tmp_path: Path) -> None:
    filesystem: FileSystem = DiskFileSystem() if kind == "real" else SimulatedDisk()
    filesystem.make_directory(tmp_path)
    root = tmp_path / "logs"
    format_directory(filesystem, root, META)
    first = opened(filesystem, root)
    with pytest.raises(DirectoryLockedError) as raised:
        opened(filesystem, root)
    assert str(root) in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(DirectoryLockedError):
        format_directory(filesystem, root, META)
    first.close()
    opened(filesystem, root).close()


# The clean-stop marker.


def test_a_clean_stop_is_recognized_once() -> None:
    disk = formatted()
    first = opened(disk)
    first.mark_clean_stop(204)
    first.close()
    assert disk.files()[str(ROOT / CLEAN_STOP_FILE)] == b'{"version":0,"brokerEpoch":204}'
    for _, left in disk.variants_after_crash():
        assert opened(left).clean_stop_epoch == 204

    second = opened(disk)
    assert second.clean_stop_epoch == 204
    for _, left in disk.variants_after_crash():
        assert opened(left).clean_stop_epoch is None, "a removed marker does not come back"
    second.close()
    assert opened(disk).clean_stop_epoch is None


def test_a_stop_without_a_broker_epoch_is_clean_too() -> None:
    disk = formatted()
    directory = opened(disk)
    directory.mark_clean_stop()
    directory.close()
    assert opened(disk).clean_stop_epoch == -1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"0", b"\xff", b'{"version":0}', b'{"brokerEpoch":5}',
     b'{"version":0,"brokerEpoch":"5"}', b'{"version":0,"brokerEpoch":true}', b"[" * 5000],
)  # fmt: skip
def test_a_broken_marker_is_not_a_clean_stop_and_is_removed(content: bytes) -> None:
    disk = formatted()
    disk.plant(ROOT / CLEAN_STOP_FILE, content)
    assert opened(disk).clean_stop_epoch is None
    assert not disk.exists(ROOT / CLEAN_STOP_FILE)


def test_fields_that_a_later_kafka_adds_to_the_marker_do_no_harm() -> None:
    disk = formatted()
    disk.plant(ROOT / CLEAN_STOP_FILE, b'{"version":1,"brokerEpoch":7,"more":[]}')
    assert opened(disk).clean_stop_epoch == 7


# Names.

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(is_topic_name)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))


@settings(deadline=None, max_examples=300)
@given(PARTITIONS, st.sampled_from(DirectoryKind), st.binary(min_size=16, max_size=16).map(Uuid))
def test_a_generated_name_is_parsed(
    partition: TopicPartition, kind: DirectoryKind, unique: Uuid
) -> None:
    try:
        name = directory_name(partition, kind, unique)
    except KafkaError as error:
        too_long = len(f"{partition}.{unique.hex()}-future") > 255
        refused = error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (kind, too_long, refused) == (DirectoryKind.FUTURE, True, True)
        return
    assert len(name) <= 260 if kind is DirectoryKind.PARTITION else len(name) <= 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed.kind is kind
    assert parsed.topic_partition.partition == partition.partition
    assert partition.topic.startswith(parsed.topic_partition.topic)
    if len(partition.topic) < 200:
        assert parsed.topic_partition == partition


def test_names_equal_kafkas() -> None:
    hexadecimal = "a1148b00fb10411a8b73544bf8cb1acb"
    assert directory_name(ORDERS) == "orders-3"
    assert directory_name(ORDERS, DirectoryKind.DELETED, UNIQUE) == f"orders-3.{hexadecimal}-delete"
    assert directory_name(ORDERS, DirectoryKind.FUTURE, UNIQUE) == f"orders-3.{hexadecimal}-future"
    assert directory_name(ORDERS, DirectoryKind.STRAY, UNIQUE) == f"orders-3.{hexadecimal}-stray"


def test_a_long_topic_name_is_cut_for_deletion_but_not_for_a_move() -> None:
    longest = TopicPartition("x" * 249, 12)
    name = directory_name(longest, DirectoryKind.DELETED, UNIQUE)
    assert len(name) == 255
    assert name == "x" * 212 + "-12.a1148b00fb10411a8b73544bf8cb1acb-delete"
    with pytest.raises(KafkaError, match="too long"):
        directory_name(longest, DirectoryKind.FUTURE, UNIQUE)


@pytest.mark.parametrize("topic", ["", ".", "..", "../../etc", "a/b", "a\0", "x" * 250, "a b"])
def test_no_path_is_built_from_an_invalid_topic_name(topic: str) -> None:
    directory = opened(formatted())
    with pytest.raises(KafkaError) as raised:
        directory.path_of(TopicPartition(topic, 0))
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert directory.path_of(ORDERS) == ROOT / "orders-3"


@pytest.mark.parametrize(
    "name",
    ["orders", "orders-", "-3", "orders-x", "orders-03", "orders--1x", "orders-2147483648",
     "orders-delete", "orders-3-delete", "orders-3.-delete", "or ders-3", "..-3",
     "orders.abc-future", "lost+found", "orders-3.abc-stray-"],
)  # fmt: skip
def test_other_names_are_not_partition_directories(name: str) -> None:
    assert parse_directory_name(name) is None


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [("a.b-c-7", "a.b-c", 7), ("x-delete-0", "x-delete", 0), ("orders--1", "orders-", 1)],
)
def test_odd_topic_names_are_parsed(name: str, topic: str, partition: int) -> None:
    parsed = parse_directory_name(name)
    assert parsed == PartitionDirectory(
        name, DirectoryKind.PARTITION, TopicPartition(topic, partition)
    )


def test_listing_separates_partitions_from_foreign_entries() -> None:
    disk = formatted()
    names = ["orders-3", "orders-4.0a-delete", "lost+found", "orders-5.0b-future", "t-0.0c-stray"]
    for name in names:
        disk.make_directory(ROOT / name)
    disk.plant(ROOT / "file-0", b"a file is not a partition")
    found, unknown = opened(disk).list_partitions()
    assert {entry.name: entry.kind for entry in found} == {
        "orders-3": DirectoryKind.PARTITION,
        "orders-4.0a-delete": DirectoryKind.DELETED,
        "orders-5.0b-future": DirectoryKind.FUTURE,
        "t-0.0c-stray": DirectoryKind.STRAY,
    }
    assert unknown == ["lost+found"]


# Failure.


def test_the_first_error_takes_the_directory_offline_for_good() -> None:
    disk = formatted()
    directory = opened(disk)
    reported: list[str] = []
    directory.on_failure(lambda failed, error: reported.append(f"{failed.path} {error.errno}"))
    disk.fail_at(disk.effects + 3, OSError(errno.EIO, "Input/output error"))

    with pytest.raises(DirectoryOfflineError, match="Input/output error") as raised:
        run_here(directory.writing_checkpoint(HIGH_WATERMARK_FILE, {ORDERS: Offset(1)}))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not directory.is_online

    effects = disk.effects
    for call in (
        lambda: run_here(directory.writing_checkpoint(HIGH_WATERMARK_FILE, {})),
        lambda: directory.read_checkpoint(HIGH_WATERMARK_FILE),
        lambda: directory.mark_clean_stop(1),
        directory.list_partitions,
        directory.check_online,
    ):
        with pytest.raises(DirectoryOfflineError, match="Input/output error"):
            call()
    directory.fail(OSError(errno.ENOSPC, "later"))
    assert disk.effects == effects, "a failed disk is not used again"
    assert reported == [f"{ROOT} {errno.EIO}"]
    directory.close()


def test_an_error_at_any_step_of_a_clean_stop_is_reported() -> None:
    for step in range(1, 6):
        disk = formatted()
        directory = opened(disk)
        disk.fail_at(disk.effects + step, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(KafkaError, match="No space left") as raised:
            directory.mark_clean_stop(1)
        # Before the rename nothing has happened yet.
        assert isinstance(raised.value, DiskFullError if step <= 3 else DirectoryOfflineError)
        directory.close()


def test_only_disk_errors_fail_a_directory() -> None:
    directory = opened(formatted())
    with pytest.raises(KafkaError, match="TOO_LARGE"), directory.offline_on_error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    with directory.offline_on_error:
        directory.check_online()
    assert directory.is_online


def test_a_disk_that_fails_while_opening_is_unlocked() -> None:
    disk = formatted()
    directory = opened(disk)
    directory.mark_clean_stop(1)
    directory.close()
    disk.fail_at(disk.effects + 1, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(DirectoryOfflineError):
        opened(disk)
    assert opened(disk).clean_stop_epoch == 1


def test_a_broken_checkpoint_does_not_count_as_a_broken_disk() -> None:
    disk = formatted()
    disk.plant(ROOT / HIGH_WATERMARK_FILE, b"0\n1\n")
    directory = opened(disk)
    with pytest.raises(CorruptCheckpointError):
        directory.read_checkpoint(HIGH_WATERMARK_FILE)
    assert directory.is_online
    run_here(directory.writing_checkpoint(HIGH_WATERMARK_FILE, {ORDERS: Offset(5)}))
    assert directory.read_checkpoint(HIGH_WATERMARK_FILE) == {ORDERS: 5}


# Directories of Apache Kafka


def test_kafkas_directories_open(tmp_path: Path) -> None:
    clean = opened(DiskFileSystem(), unpack("clean", tmp_path / "clean"))
    dirty = opened(DiskFileSystem(), unpack("dirty", tmp_path / "dirty"))
    assert clean.clean_stop_epoch == 204
    assert dirty.clean_stop_epoch is None
    for directory in (clean, dirty):
        found, unknown = directory.list_partitions()
        assert unknown == []
        deleted = [entry for entry in found if entry.kind is DirectoryKind.DELETED]
        assert [entry.topic_partition for entry in deleted] == [TopicPartition("recreated", 0)]
        assert len(found) == 19
        directory.close()
