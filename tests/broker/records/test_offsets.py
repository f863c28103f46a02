"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import WORKERS, DataNode, batch, open_transaction, running, values_of

from moldau.broker.handlers.delete_records import handle_delete_records
from moldau.broker.handlers.list_offsets import handle_list_offsets
from moldau.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.types import BrokerId, Offset

NEWEST = 11
MAX_TIMESTAMP = -3


async def fill(node: DataNode, times_ms: list[int], topic: str = "orders") -> None:
    partition = node.replicas.lookup(topic, 0)
    last = -1
    for time_ms in times_ms:
        last = partition.append(batch(b"x", timestamp_ms=time_ms)).last_offset
    await partition.wait_committed(Offset(last))


async def list_offset(
    node: DataNode,
    timestamp: int,
    version: int = NEWEST,
    *,
    index: int = 0,
    epoch: int = -1,
    isolation: int = 0,
    replica_id: int = -1,
) -> ListOffsetsPartitionResponse:
    requested = ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="orders", partitions=[requested])],
    )
    response: Any = handle_list_offsets(node.context(request, version), request)
    if inspect.isawaitable(response):
        response = await response
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
async def test_large_batches_are_searched_in_a_thread(tmp_path: Path, codec: Compression) -> None:
    """While all threads are busy, the event loop answers requests that need none."""
    count = 30_000
    times_ms = [1_000 + min(number, count - number) for number in range(count)]
    records = [Record(n, time_ms, None, b"%016x" % hash(n)) for n, time_ms in enumerate(times_ms)]
    large = build_batch(records, BatchOptions(base_offset=0, compression=codec))
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        partition.append(batch(b"x", timestamp_ms=500))
        await partition.wait_committed(partition.append(bytearray(large)).last_offset)
        release = threading.Event()
        for _ in range(WORKERS):
            node.workers.submit(release.wait)
        latest = asyncio.ensure_future(list_offset(node, MAX_TIMESTAMP))
        by_time = asyncio.ensure_future(list_offset(node, 1_000 + 77))
        assert (await list_offset(node, 500)).offset == 0
        assert (await list_offset(node, -1)).offset == count + 1
        assert not latest.done()
        release.set()
        for found, time_ms in ((await latest, 1_000 + count // 2), (await by_time, 1_077)):
            assert (found.timestamp, found.offset) == (time_ms, 1 + times_ms.index(time_ms))


async def test_offsets_are_found_by_time_and_by_their_special_names(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, [1000, 3000, 2000])
        for timestamp, time_ms, offset, epoch in [
            (0, 1000, 0, 0),
            (1000, 1000, 0, 0),
            (1001, 3000, 1, 0),
            (3001, -1, -1, -1),
            (-1, -1, 3, 0),
            (-2, -1, 0, 0),
            (-3, 3000, 1, 0),
            (-4, -1, 0, 0),
            (-5, -1, -1, -1),
            (-6, -1, -1, -1),
        ]:
            found = await list_offset(node, timestamp)
            assert (found.error_code, found.timestamp, found.offset, found.leader_epoch) == (
                0, time_ms, offset, epoch,
            ), timestamp  # fmt: skip


async def test_special_names_need_the_version_that_brought_them(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        for timestamp, version in [(-3, 7), (-4, 8), (-5, 9), (-6, 11)]:
            assert (await list_offset(node, timestamp, version)).error_code == 0
            older = await list_offset(node, timestamp, version - 1)
            assert older.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await list_offset(node, -7)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_invalid_list_offsets_requests_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        node.change_partition(leader=1)
        assert (await list_offset(node, -1, epoch=1)).error_code == 0
        for found, code in [
            (await list_offset(node, -1, index=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (await list_offset(node, -1, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
            (await list_offset(node, -1, epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (await list_offset(node, -1, isolation=5), ErrorCode.INVALID_REQUEST),
        ]:
            assert (found.error_code, found.offset) == (code, -1)
        twice = [ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(timestamp=-2)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=twice)])
        response: Any = handle_list_offsets(node.context(request), request)
        codes = [each.error_code for each in response.topics[0].partitions]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2


async def test_the_end_depends_on_the_clients_isolation_level(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        open_transaction(
            partition,
            batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        await partition.wait_committed(partition.append(batch(b"b")).last_offset)
        assert (await list_offset(node, -1)).offset == 2
        assert (await list_offset(node, -1, isolation=1)).offset == 0
        assert (await list_offset(node, 0, isolation=1)).offset == -1
        partition.append(batch(b"c"))
        assert (await list_offset(node, -1, replica_id=2)).offset == 2, (
            "a client that poses as a broker"
        )


async def test_a_new_leader_does_not_know_the_end_yet(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        node.replicas.lookup("orders", 0).append(batch(b"a"))
        node.change_partition(leader=1)
        assert (await list_offset(node, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await list_offset(node, -1, 4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await list_offset(node, 0)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await list_offset(node, -2)).error_code == 0
        node.replicas.lookup("orders", 0).follower_fetched(BrokerId(2), Offset(1))


async def test_epochs_end_where_the_next_one_begins(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, [1000, 2000])
        node.change_partition(leader=1)
        await fill(node, [3000])

        def end_of(epoch: int, current: int = -1, index: int = 0) -> tuple[int, int, int]:
            requested = OffsetForLeaderPartition(
                partition=index, leader_epoch=epoch, current_leader_epoch=current
            )
            request = OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic="orders", partitions=[requested])]
            )
            response: Any = handle_offset_for_leader_epoch(node.context(request), request)
            found = response.topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert end_of(0) == (0, 0, 2)
        assert end_of(1) == (0, 1, 3)
        assert end_of(2) == (0, -1, -1)
        assert end_of(1, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert end_of(1, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert end_of(1, index=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def delete(
    node: DataNode, offset: int, topic: str = "orders", index: int = 0
) -> tuple[int, int]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
        ]
    )
    response = await handle_delete_records(node.context(request), request)
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, [1000, 2000, 3000])
        assert await delete(node, 2) == (0, 2)
        assert await delete(node, 1) == (0, 2), "the start never goes back"
        await node.crash()
        await node.start()
        log = node.replicas.lookup("orders", 0).log
        assert log.log_start_offset == 2
        assert (await list_offset(node, -2)).offset == 2
        assert len(values_of(log.read(Offset(2), 1000).records)) == 1
        assert await delete(node, -1) == (0, 3)


@pytest.mark.parametrize(
    ("topic", "index", "offset", "code"),
    [
        ("orders", 0, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", 3, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_deletions_that_are_not_allowed_are_refused(
    topic: str, index: int, offset: int, code: ErrorCode, tmp_path: Path
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", number=1)
        node.create_topic("__consumer_offsets", number=2)
        node.create_topic("compacted", number=3, configs={"cleanup.policy": "compact"})
        await fill(node, [1000, 2000, 3000])
        assert await delete(node, offset, topic, index) == (code, -1)
