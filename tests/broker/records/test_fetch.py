"""Fetch: which records are returned, how many, when, and what sessions leave out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import (
    DataNode,
    batch,
    directory_id,
    open_transaction,
    running,
    topic_id,
    values_of,
)
from support.proofs import proves

from moldau.broker.handlers.fetch import handle_fetch
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.producers.state import AppendOrigin
from moldau.types import Offset, ProducerEpoch

BY_NAME = 12
NEWEST = 18


def request(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    given = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0, "session_epoch": -1}
    return FetchRequest(topics=list(topics), **(given | fields))


def orders(offset: int = 0, *indexes: int, **fields: Any) -> FetchTopic:
    given = {"partition_max_bytes": 1 << 20, "fetch_offset": offset}
    return FetchTopic(
        topic="orders",
        partitions=[FetchPartition(partition=i, **(given | fields)) for i in indexes or (0,)],
    )


async def fetch(
    node: DataNode, sent: FetchRequest, version: int = BY_NAME, **options: Any
) -> FetchResponse:
    outcome = handle_fetch(node.context(sent, version, **options), sent)
    return outcome if isinstance(outcome, FetchResponse) else await outcome


async def fetch_one(
    node: DataNode, sent: FetchRequest, version: int = BY_NAME, **options: Any
) -> PartitionData:
    response = await fetch(node, sent, version, **options)
    return response.responses[0].partitions[0]


async def fill(node: DataNode, *values: bytes, index: int = 0) -> None:
    """One batch for each value, committed."""
    partition = node.replicas.lookup("orders", index)
    last = -1
    for value in values:
        last = partition.append(batch(value)).last_offset
    await partition.wait_committed(Offset(last))


async def test_committed_batches_are_read_from_an_offset_on(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a", b"b", b"c")
        answer = await fetch_one(node, request(orders(1)))
        assert values_of(answer.records) == [b"b", b"c"]
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (
            3,
            3,
            0,
        )
        assert answer.aborted_transactions is None


async def test_an_offset_within_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        await partition.wait_committed(partition.append(batch(b"a", b"b", b"c")).last_offset)
        assert values_of((await fetch_one(node, request(orders(2)))).records) == [b"a", b"b", b"c"]


async def test_uncommitted_records_are_not_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        node.replicas.lookup("orders", 0).append(batch(b"a"))
        answer = await fetch_one(node, request(orders()))
        assert answer.error_code == 0
        assert answer.records == b""


async def test_a_waiting_fetch_is_answered_as_soon_as_records_are_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = request(orders(), max_wait_ms=60_000)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        node.replicas.lookup("orders", 0).append(batch(b"a"))
        response = await waiting
        assert values_of(response.responses[0].partitions[0].records) == [b"a"]


async def test_a_waiting_fetch_waits_for_enough_bytes(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        size = len(batch(b"a"))
        sent = request(orders(), max_wait_ms=60_000, min_bytes=2 * size)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        await fill(node, b"a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        await fill(node, b"b")
        response = await waiting
        assert values_of(response.responses[0].partitions[0].records) == [b"a", b"b"]


async def test_a_waiting_fetch_returns_what_exists_when_its_time_is_up(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a")
        sent = request(orders(), max_wait_ms=10_000, min_bytes=1_000_000)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        node.clock.advance(11_000)
        response = await waiting
        assert values_of(response.responses[0].partitions[0].records) == [b"a"]
        assert len(node.deadlines) == 0


async def test_no_fetch_waits_longer_than_five_minutes(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = request(orders(), max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        node.clock.advance(301_000)
        assert (await waiting).error_code == 0


async def test_a_fetch_whose_client_is_gone_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = request(orders(), max_wait_ms=10_000)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        waiting.cancel()
        await asyncio.sleep(0)
        assert len(node.deadlines) == 0
        assert node.replicas.lookup("orders", 0).watcher_count == 0
        await fill(node, b"a")


async def test_a_waiting_fetch_notices_a_deleted_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = request(orders(), max_wait_ms=60_000)
        waiting = handle_fetch(node.context(sent, BY_NAME), sent)
        assert isinstance(waiting, asyncio.Future)
        node.delete_topic()
        response = await waiting
        code = response.responses[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_limits_hold_except_for_the_very_first_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=3)
        for index in range(3):
            await fill(node, b"x" * 1000, b"y" * 1000, index=index)
        size = len(batch(b"x" * 1000))

        async def counts(**limits: Any) -> list[int]:
            partition_bytes = limits.pop("partition_max_bytes", 1 << 20)
            topic = orders(0, 0, 1, 2, partition_max_bytes=partition_bytes)
            response = await fetch(node, request(topic, **limits))
            return [len(values_of(p.records)) for p in response.responses[0].partitions]

        assert await counts() == [2, 2, 2]
        assert await counts(partition_max_bytes=size) == [1, 1, 1]
        assert await counts(partition_max_bytes=2 * size - 1) == [1, 1, 1]
        assert await counts(partition_max_bytes=1) == [1, 0, 0]
        assert await counts(max_bytes=0) == [1, 0, 0]
        assert await counts(max_bytes=3 * size) == [2, 1, 0]
        assert await counts(max_bytes=3 * size + 5) == [2, 1, 0]


async def test_the_broker_s_own_limit_holds_too(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"fetch.max.bytes": "1024"}) as node:
        node.create_topic("orders")
        await fill(node, b"x" * 600, b"y" * 600)
        assert len(values_of((await fetch_one(node, request(orders()))).records)) == 1


BAD = {
    "105 before the start": (orders(-1), ErrorCode.OFFSET_OUT_OF_RANGE),
    "105 after the end": (orders(5), ErrorCode.OFFSET_OUT_OF_RANGE),
    "106 old epoch": (orders(current_leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
    "106 future epoch": (orders(current_leader_epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    "112 negative": (orders(partition_max_bytes=-1), ErrorCode.INVALID_REQUEST),
    "no such partition": (orders(0, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_bad_partitions_are_refused_at_once(name: str, tmp_path: Path) -> None:
    topic, code = BAD[name]
    async with running(tmp_path) as node:
        node.create_topic("orders")
        node.change_partition(leader=1)
        await fill(node, b"a")
        answer = await fetch_one(node, request(topic, max_wait_ms=60_000))
        assert answer.error_code == code
        assert (answer.high_watermark, answer.records) == (-1, b"")


async def test_bad_requests_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        for fields, code in [
            ({"max_bytes": -1}, ErrorCode.INVALID_REQUEST),
            ({"isolation_level": 7}, ErrorCode.INVALID_REQUEST),
            ({"replica_id": 2}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ]:
            answer = await fetch_one(node, request(orders(), **fields))
            assert answer.error_code == code
        assert (await fetch(node, request())).responses == []
        unknown = FetchTopic(topic_id=topic_id(9), partitions=[FetchPartition()])
        unnamed = FetchTopic(partitions=[FetchPartition()])
        for topic in (unknown, unnamed):
            answer = await fetch_one(node, request(topic), NEWEST)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_negative_waits_are_none(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = request(orders(), max_wait_ms=-5)
        assert isinstance(handle_fetch(node.context(sent, BY_NAME), sent), FetchResponse)


async def test_readers_of_committed_records_get_the_aborted_transactions(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        open_transaction(
            partition,
            batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        last = partition.append(batch(b"b")).last_offset
        await partition.wait_committed(last)
        answer = await fetch_one(node, request(orders(), isolation_level=1))
        assert (answer.records, answer.last_stable_offset, answer.high_watermark) == (b"", 0, 2)
        assert answer.aborted_transactions == []
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=ControlType.ABORT, coordinator_epoch=0),
            MarkerOrigin(producer_id=5, producer_epoch=ProducerEpoch(0)),
            node.clock.wall_ms(),
        )
        last = partition.append(
            bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=1
        ).last_offset
        await partition.wait_committed(last)
        answer = await fetch_one(node, request(orders(), isolation_level=1))
        assert answer.last_stable_offset == 3
        assert answer.aborted_transactions is not None
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert aborted == [(5, 0)]


async def test_a_reader_of_committed_records_waits_for_the_end_of_the_transaction(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        open_transaction(
            partition,
            batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        sent = request(orders(), isolation_level=1, max_wait_ms=60_000, min_bytes=1)
        waiting = handle_fetch(node.context(sent, 12), sent)
        assert isinstance(waiting, asyncio.Future)
        await partition.wait_committed(partition.append(batch(b"b")).last_offset)
        await asyncio.sleep(0)
        assert not waiting.done(), "more is committed, but none of it is stable"
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=ControlType.ABORT, coordinator_epoch=0),
            MarkerOrigin(producer_id=5, producer_epoch=ProducerEpoch(1)),
            node.clock.wall_ms(),
        )
        partition.append(bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=2)
        answer = (await waiting).responses[0].partitions[0]
        assert answer.last_stable_offset == answer.high_watermark == 3
        assert values_of(answer.records)[:2] == [b"a", b"b"]
        assert answer.aborted_transactions is not None
        assert [each.first_offset for each in answer.aborted_transactions] == [0]


# Replicas


async def test_a_follower_reads_to_the_end_and_commits_what_it_has(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        partition = node.replicas.lookup("orders", 0)
        committed = partition.wait_committed(partition.append(batch(b"a")).last_offset)
        replica = ReplicaState(replica_id=2)
        topic = FetchTopic(topic_id=topic_id(1), partitions=orders(0).partitions)
        answer = await fetch_one(
            node, request(topic, replica_state=replica), NEWEST, privileged=True
        )
        assert values_of(answer.records) == [b"a"]
        topic = FetchTopic(topic_id=topic_id(1), partitions=orders(1).partitions)
        await fetch_one(node, request(topic, replica_state=replica), NEWEST, privileged=True)
        await committed
        stranger = ReplicaState(replica_id=9)
        answer = await fetch_one(
            node, request(topic, replica_state=stranger), NEWEST, privileged=True
        )
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_waiting_follower_gets_what_is_appended_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        topic = FetchTopic(topic_id=topic_id(1), partitions=orders(0).partitions)
        sent = request(topic, replica_state=ReplicaState(replica_id=2), max_wait_ms=60_000)
        waiting = handle_fetch(node.context(sent, NEWEST, privileged=True), sent)
        assert isinstance(waiting, asyncio.Future)
        node.replicas.lookup("orders", 0).append(batch(b"a"))
        response = await waiting
        assert values_of(response.responses[0].partitions[0].records) == [b"a"]


async def test_a_reader_with_another_history_gets_the_diverging_epoch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        await fill(node, b"a", b"b")
        node.change_partition(leader=1)
        await fill(node, b"c")
        answer = await fetch_one(node, request(orders(3, last_fetched_epoch=0)))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
        assert answer.records == b""
        answer = await fetch_one(node, request(orders(3, last_fetched_epoch=1)))
        assert answer.diverging_epoch.epoch == -1
        answer = await fetch_one(node, request(orders(3, last_fetched_epoch=4)))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# Sessions


async def test_a_session_leaves_out_unchanged_partitions(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=2)
        first = await fetch(node, request(orders(0, 0, 1), session_epoch=0))
        assert first.session_id > 0
        assert [p.partition_index for p in first.responses[0].partitions] == [0, 1]
        session = first.session_id
        quiet = await fetch(node, request(session_id=session, session_epoch=1))
        assert (quiet.session_id, quiet.responses) == (session, [])
        await fill(node, b"a", index=1)
        news = await fetch(node, request(session_id=session, session_epoch=2))
        assert [p.partition_index for p in news.responses[0].partitions] == [1]
        moved = await fetch(node, request(orders(1, 1), session_id=session, session_epoch=3))
        assert moved.responses == []
        forgets = ForgottenTopic(topic="orders", partitions=[1])
        await fill(node, b"b", index=1)
        after = await fetch(
            node,
            request(forgotten_topics_data=[forgets], session_id=session, session_epoch=4),
        )
        assert after.responses == []


async def test_an_error_is_repeated_and_its_end_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        first = await fetch(node, request(orders(), session_epoch=0))
        session = first.session_id
        node.change_partition(leader=2)
        for epoch in (1, 2):
            bad = await fetch(node, request(session_id=session, session_epoch=epoch))
            assert bad.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.change_partition(leader=1)
        good = await fetch(node, request(session_id=session, session_epoch=3))
        assert good.responses[0].partitions[0].error_code == 0


async def test_sessions_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        session = (await fetch(node, request(orders(), session_epoch=0))).session_id
        for fields, version, code in [
            ({"session_id": session + 1, "session_epoch": 1}, 12, "FETCH_SESSION_ID_NOT_FOUND"),
            ({"session_id": session, "session_epoch": 9}, 12, "INVALID_FETCH_SESSION_EPOCH"),
            ({"session_id": session, "session_epoch": 1}, 13, "FETCH_SESSION_TOPIC_ID_ERROR"),
        ]:
            response = await fetch(node, request(**fields), version)
            assert response.error_code == ErrorCode[code]
        ended = await fetch(node, request(session_id=session, session_epoch=-1))
        assert (ended.error_code, ended.session_id) == (0, 0)
        gone = await fetch(node, request(session_id=session, session_epoch=1))
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@proves("max.incremental.fetch.session.cache.slots")
async def test_without_a_free_slot_fetches_are_served_without_a_session(tmp_path: Path) -> None:
    slots = {"max.incremental.fetch.session.cache.slots": "2"}
    async with running(tmp_path, settings=slots) as node:
        node.create_topic("orders", partitions=2)
        first = await fetch(node, request(orders(), session_epoch=0))
        second = await fetch(node, request(orders(), session_epoch=0))
        assert first.session_id > 0
        assert second.session_id > 0
        third = await fetch(node, request(orders(), session_epoch=0))
        assert (third.session_id, third.error_code) == (0, 0)
        node.clock.advance(130_000)
        late = await fetch(node, request(orders(), session_epoch=0))
        assert late.session_id > 0, "the stalest session makes room"
        gone = await fetch(node, request(session_id=first.session_id, session_epoch=1))
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_partitions_that_got_something_go_to_the_end_of_the_line(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=2)
        for index in range(2):
            await fill(node, b"x" * 1000, index=index)
        first = await fetch(node, request(orders(0, 0, 1), session_epoch=0, max_bytes=10))
        session = first.session_id
        second = await fetch(node, request(session_id=session, session_epoch=1, max_bytes=10))
        served = [p.partition_index for p in second.responses[0].partitions if p.records]
        third = await fetch(node, request(session_id=session, session_epoch=2, max_bytes=10))
        served += [p.partition_index for p in third.responses[0].partitions if p.records]
        assert sorted(served) == [0, 1]


async def test_old_clients_search_for_another_leader_when_a_disk_fails(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", directory=directory_id(0))
        node.directories[0].fail(OSError(5, "the disk is gone"))
        for version, code in [(5, "NOT_LEADER_OR_FOLLOWER"), (6, "KAFKA_STORAGE_ERROR")]:
            answer = await fetch_one(node, request(orders()), version)
            assert answer.error_code == ErrorCode[code]


async def test_a_client_that_poses_as_a_replica_takes_no_session_of_others(tmp_path: Path) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "1"}
    async with running(tmp_path, settings=settings) as node:
        node.create_topic("orders", partitions=2, replicas=(1, 2))
        session = (await fetch(node, request(orders(), session_epoch=0))).session_id
        assert session > 0
        poses = request(orders(0, 0, 1), session_epoch=0, replica_id=2)
        assert (await fetch_one(node, poses)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        kept = await fetch(node, request(session_id=session, session_epoch=1))
        assert (kept.session_id, kept.error_code) == (session, ErrorCode.NONE)
        follower = await fetch(
            node, request(orders(0, 0, 1), session_epoch=0, replica_id=2), privileged=True
        )
        assert follower.session_id > 0
        gone = await fetch(node, request(session_id=session, session_epoch=2))
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
