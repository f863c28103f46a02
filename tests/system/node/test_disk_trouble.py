"""Disks that are full, read-only or broken: clients get a clear error, existing data can be read,
and with a sound disk everything resumes automatically.
"""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.running_node import QUICK_SETTINGS, NodeDidNotStartError, RunningNode
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.failing_sync import FailingSync
from system.node.questions import (
    EARLIEST,
    commit,
    committed,
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    find_coordinator,
    offset_at,
    produce,
    read_all,
    set_config,
    topics_of,
)
from system.node.small_disk import SmallDisk, small_disk
from system.node.starting import assert_refused, start_and_wait

from moldau.protocol.error_codes import ErrorCode
from moldau.storage.directory.directory import CLEAN_STOP_FILE
from moldau.storage.disk.reserve import RESERVE_FILE

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
RESERVE_BYTES = 1 << 20
# A coordinator in trouble answers: retry, perhaps with another broker.
COORDINATOR_ERRORS = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
RECORD = b"a record that takes a little room"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "8m") as made:
        yield made


def node_on(disk: SmallDisk, folder: Path) -> RunningNode:
    settings = {"log.dirs": str(disk.path / "data"), "moldau.reserve.bytes": str(RESERVE_BYTES)}
    return RunningNode(folder, QUICK_SETTINGS | settings)


def set_up(node: RunningNode) -> None:
    """A topic with a record, a group with an offset."""
    with WireClient(node.address) as client:
        create_topics(client, {"kept": 1})
        assert produce(client, "kept", RECORD) == (0, 0)
        commit_first(client)


def commit_first(client: WireClient) -> None:
    wait_for(lambda: find_coordinator(client, "readers") == 0, "the coordinator")
    wait_for(lambda: commit(client, "readers", ("kept", 0), 1) == 0, "a commit")


def fill(disk: SmallDisk, client: WireClient) -> int:
    """To the last byte, also of blocks that were begun; returns the records of the topic."""
    disk.fill()
    count = read_count(client)
    for size in (4000, 400, 1):
        while True:
            code, offset = produce(client, "kept", bytes(size))
            if code:
                assert code == STORAGE_ERROR
                break
            count = offset + 1
    return count


def read_count(client: WireClient) -> int:
    return len(read_all(client, "kept"))


def wait_until_taken(client: WireClient, topic: str) -> None:
    wait_for(lambda: produce(client, topic, RECORD)[0] == 0, f"room for {topic}")


def wait_for_reserve(disk: SmallDisk) -> None:
    reserve = disk.path / "data" / RESERVE_FILE
    wait_for(lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES, "the reserve")


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    disk: SmallDisk, tmp_path: Path
) -> None:
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        wait_for_reserve(disk)
        with WireClient(node.address) as client:
            count = fill(disk, client)
            assert produce(client, "kept", RECORD)[0] == STORAGE_ERROR
            assert produce(client, "kept", RECORD, acks=1)[0] == STORAGE_ERROR
            assert read_count(client) == count
            assert fetch(client, ("kept", 0), 0).error_code == 0
            assert topics_of(client) == {"kept": 1}
            assert committed(client, "readers") == (0, {("kept", 0): 1})

            disk.make_room()
            assert produce(client, "kept", RECORD) == (0, count)
            assert commit(client, "readers", ("kept", 0), 2) == 0
            assert create_topics(client, {"new": 1}) == {"new": (0, None)}
            assert produce(client, "new", RECORD) == (0, 0)
        assert node.stop() == 0


def test_coordinators_and_the_controller_report_that_there_is_no_room(
    disk: SmallDisk, tmp_path: Path
) -> None:
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        wait_for_reserve(disk)
        with WireClient(node.address) as client:
            fill(disk, client)
            offset = 2
            while (code := commit(client, "readers", ("kept", 0), offset)) == 0:
                offset += 1
            assert code in COORDINATOR_ERRORS
            assert committed(client, "readers") == (0, {("kept", 0): offset - 1})
            number = 0
            while (code := create_topics(client, {f"new-{number}": 1})[f"new-{number}"][0]) == 0:
                number += 1
            assert code == STORAGE_ERROR
            assert set_config(client, "kept", "retention.ms", "1000000") in {0, STORAGE_ERROR}
            assert set(topics_of(client)) == {"kept", *(f"new-{i}" for i in range(number))}

            disk.make_room()
            assert commit(client, "readers", ("kept", 0), offset) == 0
            assert create_topics(client, {"later": 1}) == {"later": (0, None)}
            assert set_config(client, "kept", "retention.ms", "1000000") == 0
            for name in ["later", *(f"new-{i}" for i in range(number))]:
                wait_until_taken(client, name)
        assert node.stop() == 0


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_node_is_stopped_and_started_on_a_full_disk(
    how: str, disk: SmallDisk, tmp_path: Path
) -> None:
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        wait_for_reserve(disk)
        with WireClient(node.address) as client:
            count = fill(disk, client)
        if how == "stopped":
            assert node.stop() == 0
            assert (disk.path / "data" / CLEAN_STOP_FILE).exists()
        else:
            node.kill()
        node.start()
        with WireClient(node.address) as client:
            assert read_count(client) >= count
            assert topics_of(client) == {"kept": 1}
            wait_for(lambda: committed(client, "readers") == (0, {("kept", 0): 1}), "the group")
            disk.make_room()
            wait_until_taken(client, "kept")
            wait_for(lambda: commit(client, "readers", ("kept", 0), 2) == 0, "room")
        assert node.stop() == 0


def test_room_is_made_by_deleting_a_topic_or_records(disk: SmallDisk, tmp_path: Path) -> None:
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        with WireClient(node.address) as client:
            configs = {"file.delete.delay.ms": "0"}
            assert create_topics(client, {"large": 1}, configs) == {"large": (0, None)}
            for _ in range(8):
                assert produce(client, "large", bytes(100_000))[0] == 0
            wait_for_reserve(disk)
            count = fill(disk, client)
            assert delete_records(client, ("kept", 0), count - 1) == (0, count - 1)
            assert delete_topics(client, "large") == {"large": 0}
            wait_until_taken(client, "kept")
        node.kill()
        node.start()
        with WireClient(node.address) as client:
            assert offset_at(client, ("kept", 0), EARLIEST) == count - 1
            assert topics_of(client) == {"kept": 1}


def test_idempotent_producers_wait_for_room_and_keep_their_order(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """Some of several requests in flight are refused, while smaller ones after them would fit."""
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        with WireClient(node.address) as client:
            count = fill(disk, client)
        outcomes: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": node.address,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 50,
            }
        )
        values = [f"{number} ".encode().ljust(5 + 4000 * (number % 2)) for number in range(50)]
        for value in values:
            producer.produce(
                "kept",
                value,
                on_delivery=lambda error, _: outcomes.append(error),
            )
        assert producer.flush(1) > 0
        disk.make_room()
        assert producer.flush(60) == 0
        assert outcomes == [None] * len(values)
        with WireClient(node.address) as client:
            assert read_all(client, "kept")[count:] == values
        assert node.stop() == 0


# Read-only


def test_a_read_only_directory_is_refused_in_one_line(disk: SmallDisk, tmp_path: Path) -> None:
    with node_on(disk, tmp_path) as node:
        node.start()
        set_up(node)
        assert node.stop() == 0
        disk.make_read_only()
        ended = start_and_wait("--dir", disk.path / "data", "--port", 0)
        assert_refused(ended, "Read-only file system")
        ended = start_and_wait("--dir", disk.path / "new", "--port", 0)
        assert_refused(ended, "Read-only file system")
        disk.make_writable()
        node.start()
        with WireClient(node.address) as client:
            assert read_all(client, "kept") == [RECORD]
            assert produce(client, "kept", RECORD) == (0, 1)
        assert node.stop() == 0


# One of two directories


class TwoDirectories:
    """A node with one directory for metadata and one that will fail; topics in both."""

    def __init__(self, folder: Path, failing: Path) -> None:
        self.sound, self.failing = folder / "sound", failing
        settings = {
            "log.dirs": f"{self.sound},{failing}",
            "metadata.log.dir": str(self.sound),
            "moldau.reserve.bytes": "0",
        }
        self.node = RunningNode(folder, QUICK_SETTINGS | settings)

    def set_up(self) -> tuple[str, str]:
        """A topic in the sound directory and one in the other, with a record each."""
        with WireClient(self.node.address) as client:
            create_topics(client, {f"topic-{number}": 1 for number in range(4)})
            for number in range(4):
                assert produce(client, f"topic-{number}", RECORD) == (0, 0)
        topics = [
            next(path.name for path in folder.iterdir() if path.name.startswith("topic-"))
            for folder in (self.sound, self.failing)
        ]
        return topics[0].removesuffix("-0"), topics[1].removesuffix("-0")


def test_a_directory_that_cannot_be_used_does_not_keep_the_other_from_serving(
    disk: SmallDisk, tmp_path: Path
) -> None:
    two = TwoDirectories(tmp_path, disk.path / "data")
    with two.node as node:
        node.start()
        sound, lost = two.set_up()
        assert node.stop() == 0
        disk.make_read_only()
        node.start()
        assert "Read-only file system" in node.errors
        with WireClient(node.address) as client:
            assert read_all(client, sound) == [RECORD]
            assert produce(client, sound, RECORD) == (0, 1)
            assert produce(client, lost, RECORD)[0] != 0
            assert set(topics_of(client)) == {f"topic-{number}" for number in range(4)}
        assert node.stop() == 0
        disk.make_writable()
        node.start()
        with WireClient(node.address) as client:
            wait_until_taken(client, lost)
            assert read_all(client, lost) == [RECORD, RECORD]
        assert node.stop() == 0


def test_a_failed_directory_goes_offline_and_the_other_keeps_serving(tmp_path: Path) -> None:
    """Writes past a limit fail with an error that no disk recovers from."""
    two = TwoDirectories(tmp_path, tmp_path / "failing")
    with two.node as node:
        node.start()
        sound, lost = two.set_up()
        with WireClient(node.address) as client:
            for _ in range(4):
                assert produce(client, lost, bytes(100_000))[0] == 0
            size = sum(f.stat().st_size for f in (two.failing / f"{lost}-0").glob("*.log"))
            node.resources.rlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            assert produce(client, lost, RECORD)[0] == STORAGE_ERROR
            assert "is offline" in node.errors
            assert produce(client, sound, RECORD) == (0, 1)
            assert read_all(client, sound) == [RECORD, RECORD]
            wait_for(lambda: produce(client, lost, RECORD)[0] != 0, "the failure to be known")
            node.resources.rlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            assert produce(client, lost, RECORD)[0] != 0
        assert node.stop() == 0
        node.start()
        with WireClient(node.address) as client:
            assert len(read_all(client, lost)) == 5
            assert produce(client, lost, RECORD) == (0, 5)
        assert node.stop() == 0


def test_a_sync_that_fails_acknowledges_nothing_and_is_final(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    sync = FailingSync(tmp_path, failing)
    two = TwoDirectories(tmp_path, failing)
    with two.node as node:
        node.prefix = sync.prefix
        node.start()
        sound, lost = two.set_up()
        with WireClient(node.address) as client:
            sync.begin()
            assert produce(client, lost, RECORD)[0] == STORAGE_ERROR
            assert "failing is offline" in node.errors
            sync.end()
            # Such a disk is never used again, even if it seems to be sound.
            assert produce(client, lost, RECORD)[0] != 0
            assert produce(client, sound, RECORD) == (0, 1)
        assert node.stop() == 0
        assert not (failing / CLEAN_STOP_FILE).exists()
        node.start()
        with WireClient(node.address) as client:
            wait_until_taken(client, lost)
            assert read_all(client, lost)[0] == RECORD
        assert node.stop() == 0


def test_a_directory_that_fails_while_its_logs_are_loaded_ends_the_start(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        set_up(node)
        assert node.stop() == 0
        (log,) = (node.log_folder / "kept-0").glob("*.log")
        log.unlink()
        log.mkdir()
        with pytest.raises(NodeDidNotStartError, match="status 1"):
            node.start()
        assert f"log directory {node.log_folder} is offline" in node.errors
        assert node.errors.splitlines()[-1] == "moldau: all log directories are offline"
        assert "Traceback" not in node.errors


def test_the_failure_of_the_only_directory_ends_the_node_in_one_line(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        set_up(node)
        with WireClient(node.address) as client:
            for _ in range(4):
                assert produce(client, "kept", bytes(100_000))[0] == 0
            size = sum(f.stat().st_size for f in (node.log_folder / "kept-0").glob("*.log"))
            node.resources.rlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            assert produce(client, "kept", RECORD)[0] == STORAGE_ERROR
        assert node.process is not None
        assert node.process.wait(60) == 1
        assert node.errors.splitlines()[-1] == "moldau: all log directories are offline"
        assert "Traceback" not in node.errors
        node.start()
        with WireClient(node.address) as client:
            assert len(read_all(client, "kept")) == 5
            assert produce(client, "kept", RECORD) == (0, 5)
        assert node.stop() == 0
