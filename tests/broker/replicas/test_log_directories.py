"""Several log directories: their contents, replicas that move between them, and one that fails."""

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import DataNode, batch, directory_id, running, topic_id, values_of
from support.waiting import until

from moldau.broker.cluster.directory_assignments import DirectoryAssignments
from moldau.broker.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs
from moldau.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from moldau.core.metadata.image import UNASSIGNED_DIRECTORY
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from moldau.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from moldau.protocol.wire.schema import Message
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.testing.simulated_faults import Effect, Fault
from moldau.types import BrokerId, Offset


async def fill(node: DataNode, count: int, index: int = 0) -> None:
    partition = node.replicas.lookup("orders", index)
    last = -1
    for number in range(count):
        last = partition.append(batch(b"%d" % number)).last_offset
    await partition.wait_committed(Offset(last))


async def describe(
    node: DataNode, topics: list[DescribableLogDirTopic] | None = None
) -> list[DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=topics)
    return (await handle_describe_log_dirs(node.context(request), request)).results


def move(node: DataNode, path: Path, topic: str = "orders", index: int = 0) -> int:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])]
            )
        ]
    )
    response: Any = handle_alter_replica_log_dirs(node.context(request), request)
    code: int = response.results[0].partitions[0].error_code
    return code


def home_of(node: DataNode) -> Path:
    return node.replicas.lookup("orders", 0).log.directory.path


async def until_moved(node: DataNode, path: Path) -> None:
    """The move notifies only the controller."""
    await until(lambda: home_of(node) == path and _copies(node) == 1)


def _copies(node: DataNode) -> int:
    return sum(("orders", 0) in logs.by_partition for logs in node.replicas.store.logs)


async def test_directories_describe_their_contents(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", partitions=2)
        await fill(node, 3)
        results = await describe(node)
        assert [each.log_dir for each in results] == [str(path) for path in node.directory_paths]
        for result in results:
            assert (result.error_code, len(result.topics)) == (0, 1)
            assert 0 < result.usable_bytes <= result.total_bytes
        sizes = {
            p.partition_index: (p.partition_size, p.offset_lag, p.is_future_key)
            for result in results
            for p in result.topics[0].partitions
        }
        assert sizes == {0: (3 * len(batch(b"0")), 0, False), 1: (0, 0, False)}
        only = [DescribableLogDirTopic(topic="orders", partitions=[1])]
        found = [p for r in await describe(node, only) for t in r.topics for p in t.partitions]
        assert [p.partition_index for p in found] == [1]
        assert all(not result.topics for result in await describe(node, []))


async def test_a_log_moves_while_it_is_written_to(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", directory=directory_id(0))
        await fill(node, 2_500)
        partition = node.replicas.lookup("orders", 0)
        assert move(node, node.directory_paths[1]) == 0
        acked = []
        while home_of(node) != node.directory_paths[1]:
            acked.append(partition.wait_committed(partition.append(batch(b"more")).last_offset))
            await asyncio.sleep(0)
        await asyncio.gather(*acked)
        log = partition.log
        assert log.log_end_offset == log.high_watermark == 2_500 + len(acked)
        values = values_of(log.read(Offset(0), 10**7).records)
        assert values[:3] == [b"0", b"1", b"2"]
        assert values.count(b"more") == len(acked)
        await fill(node, 1)
        await node.restart()
        assert home_of(node) == node.directory_paths[1]
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 2_501 + len(acked)
        assert (await describe(node))[0].topics == []


async def test_a_move_resumes_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", directory=directory_id(0))
        await fill(node, 3_000)
        move(node, node.directory_paths[1])
        await node.crash()
        names = [path.name for path in node.directory_paths[1].iterdir()]
        assert any(name.endswith("-future") for name in names)
        await node.start()
        await until_moved(node, node.directory_paths[1])
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 3_000


async def test_a_crash_between_the_two_names_of_a_moved_log_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", directory=directory_id(0))
        await fill(node, 10)
        move(node, node.directory_paths[1])
        await until_moved(node, node.directory_paths[1])
        await fill(node, 5)
        await node.crash()
        old = next(p for p in node.directory_paths[0].iterdir() if p.name.endswith("-delete"))
        old.rename(node.directory_paths[0] / "orders-0")
        await node.start()
        assert home_of(node) == node.directory_paths[1]
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 15
        assert any(p.name.endswith("-stray") for p in node.directory_paths[0].iterdir())


async def test_a_move_to_where_the_log_is_calls_the_move_off(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", directory=directory_id(0))
        await fill(node, 3_000)
        assert move(node, node.directory_paths[1]) == 0
        assert (await describe(node))[1].topics[0].partitions[0].is_future_key
        assert move(node, node.directory_paths[0]) == 0
        assert (await describe(node))[1].topics == []
        await asyncio.sleep(0)
        assert home_of(node) == node.directory_paths[0]


class FullDisk(SimulatedDisk):
    """Appends below one directory find no room while the test requests it."""

    full: Path | None = None

    def begin(self, kind: str, path: Path, size_bytes: int) -> tuple[int, Fault | None]:
        number, fault = super().begin(kind, path, size_bytes)
        if kind == "append" and self.full in path.parents:
            return number, Fault(OSError(errno.ENOSPC, "No space left on device"), 0)
        return number, fault


async def test_a_move_that_fails_at_its_end_is_undone_and_can_be_requested_again() -> None:
    disk = FullDisk()
    async with running(Path("/disk"), directories=2, filesystem=disk) as node:
        node.create_topic("orders", partitions=2, directory=directory_id(0))
        await fill(node, 10)
        partition, there = node.replicas.lookup("orders", 0), node.directory_paths[1]
        promoted = asyncio.Event()

        def write_when_promoted(effect: Effect) -> None:
            """Leaves something to copy, for which there is no room."""
            is_promotion = effect.kind == "rename" and effect.path == str(there / "orders-0")
            if is_promotion and not promoted.is_set():
                disk.full = there
                asyncio.get_running_loop().call_soon(partition.append, batch(b"late"))
                promoted.set()

        disk.on_effect(write_when_promoted)
        move(node, there)
        await promoted.wait()
        target = node.replicas.store.logs[1]
        # Nothing signals a move that failed.
        await until(lambda: ("orders", 0) not in target.by_partition)
        assert home_of(node) == node.directory_paths[0]
        assert not [n for n in disk.list_directory(there) if n == "orders-0"]

        disk.full = None
        assert move(node, there, index=1) == 0, "another one is not held up"
        assert move(node, there) == 0
        await until_moved(node, there)
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 11


async def test_no_move_makes_the_loop_wait_for_the_disk_that_it_copies_from() -> None:
    disk = SimulatedDisk()
    readers: set[str] = set()
    disk.wait_for_disk = lambda _path: readers.add(threading.current_thread().name)
    async with running(Path("/disk"), directories=2, filesystem=disk) as node:
        small = {"internal.segment.bytes": "20000"}
        node.create_topic("orders", directory=directory_id(0), configs=small)
        await fill(node, 2_500)
        await node.restart()
        here, there = node.directory_paths
        warm: set[Path] = set()

        def is_cold(path: Path) -> bool:
            """Whether a file is cold: until a thread has read it; the active segment never is."""
            if threading.current_thread() is not threading.main_thread():
                warm.add(path)
            return path.parent == here / "orders-0" and path not in warm

        disk.is_cold = is_cold
        node.replicas.lookup("orders", 0).log.advance_log_start(Offset(100))
        move(node, there)
        await until_moved(node, there)
        assert warm
        assert threading.main_thread().name not in readers


async def test_a_log_whose_end_was_compacted_away_moves_with_its_offsets(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", directory=directory_id(0))
        await fill(node, 4)
        log = node.replicas.lookup("orders", 0).log
        log.roll(node.clock.wall_ms())
        log.skip_to(Offset(20), node.clock.wall_ms())
        move(node, node.directory_paths[1])
        await until_moved(node, node.directory_paths[1])
        partition = node.replicas.lookup("orders", 0)
        assert partition.append(batch(b"next")).first_offset == 20


async def test_moves_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, directories=3) as node:
        node.create_topic("orders", directory=directory_id(0))
        there = node.directory_paths[1]
        assert move(node, tmp_path / "elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(node, there, index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move(node, there, topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.directories[2].fail(OSError(5, "gone"))
        assert move(node, node.directory_paths[2]) == ErrorCode.KAFKA_STORAGE_ERROR
        assert move(node, there) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_partition_is_made_in_the_directory_that_was_requested_before(
    tmp_path: Path,
) -> None:
    """Kafka's tools do this before a reassignment; the response says that the replica does not
    exist yet.
    """
    async with running(tmp_path, directories=3) as node:
        first, second, third = node.directory_paths
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move(node, second) == unknown
        assert move(node, third) == unknown, "the last word counts"
        assert move(node, first, index=1) == unknown
        assert move(node, tmp_path / "elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(node, first, topic="x" * 249) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert move(node, first, topic="../x") == ErrorCode.INVALID_TOPIC_EXCEPTION
        # It overrides the controller's choice, and is reported to the controller.
        placed: list[Path] = []
        node.replicas.on_placement(lambda partition: placed.append(partition.log.directory.path))
        node.create_topic("orders", partitions=2, directory=directory_id(1))
        assert home_of(node) == third
        assert node.replicas.lookup("orders", 1).log.directory.path == first
        assert placed == [third, first]
        # The preference is spent: another topic of that name is placed as usual.
        node.delete_topic()
        node.create_topic("orders", number=2, directory=directory_id(1))
        assert home_of(node) == second


async def test_a_replica_that_is_somewhere_else_is_not_available(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", replicas=(7,))
        second = node.directory_paths[1]
        assert move(node, second) == ErrorCode.REPLICA_NOT_AVAILABLE
        node.change_partition(replicas=[7, 1], directories=[UNASSIGNED_DIRECTORY, directory_id(0)])
        partition = node.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log.directory.path == second


async def test_cordoned_directories_get_nothing_new(tmp_path: Path) -> None:
    cordoned = {"cordoned.log.dirs": str(tmp_path / "logs-0"), "log.dirs": f"{tmp_path}/logs-0"}
    async with running(tmp_path, directories=2, settings=cordoned) as node:
        node.create_topic("orders", partitions=3)
        assert [len(logs.by_partition) for logs in node.replicas.store.logs] == [0, 3]
        assert [result.is_cordoned for result in await describe(node)] == [True, False]
        there = node.directory_paths[0]
        assert move(node, there) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_a_failed_directory_takes_only_its_own_partitions_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        failed: list[Path] = []
        node.replicas.on_directory_failure(lambda directory: failed.append(directory.path))
        node.create_topic("orders", partitions=2)
        lost = node.replicas.lookup("orders", 0)
        waiting = lost.wait_committed(lost.append(batch(b"a")).last_offset)
        path = lost.log.directory.path
        lost.log.directory.fail(OSError(5, "Input/output error"))
        assert failed == [path]
        with pytest.raises(KafkaError) as failure:
            await waiting
        assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError) as refused:
            node.replicas.lookup("orders", 0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await fill(node, 2, index=1)
        codes = {each.log_dir: each.error_code for each in await describe(node)}
        assert codes[str(path)] == ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(codes.values()) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        node.create_topic("new", number=2)
        assert node.replicas.lookup("new", 0).log.directory.path != path


async def test_a_partition_of_an_offline_directory_is_not_made_anew_elsewhere(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, directories=2) as node:
        node.directories[0].fail(OSError(5, "gone"))
        node.create_topic("orders", directory=directory_id(0))
        with pytest.raises(KafkaError) as refused:
            node.replicas.lookup("orders", 0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


class Controller:
    def __init__(self) -> None:
        self.reports: list[AssignReplicasToDirsRequest] = []
        self.refuses = 0
        self.is_reported = asyncio.Event()

    async def send(self, request: Message, version: int | None = None) -> Message:
        assert version is None
        assert isinstance(request, AssignReplicasToDirsRequest)
        if self.refuses:
            self.refuses -= 1
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.reports.append(request)
        self.is_reported.set()
        return AssignReplicasToDirsResponse()


async def test_the_directories_of_replicas_are_reported_to_the_controller(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        controller, tasks = Controller(), Tasks()
        assignments = DirectoryAssignments(BrokerId(1), controller, lambda: 4, tasks, node.clock)
        node.replicas.on_placement(assignments.placed)
        controller.refuses = 1
        node.create_topic("orders", partitions=2, directory=UNASSIGNED_DIRECTORY)
        await asyncio.sleep(0)
        node.clock.advance(2_000)
        await controller.is_reported.wait()
        reports = {
            (topic.topic_id, partition.partition_index): directory.id
            for directory in controller.reports[0].directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        assert reports == {(topic_id(1), 0): directory_id(0), (topic_id(1), 1): directory_id(1)}
        assert controller.reports[0].broker_epoch == 4
        await tasks.close()
