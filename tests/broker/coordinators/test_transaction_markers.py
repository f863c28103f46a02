"""Markers on their way to partitions: each partition gets its own, despite all faults, unless it is
deleted.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.marker_node import MarkerNode, running_markers
from support.waiting import take_turns, until

from moldau.broker.coordinators.markers import REQUESTS_IN_FLIGHT_MAX, RETRY_DELAY_MS_MAX
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.core.coordinator.placement import partition_for
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.types import NO_LEADER

NEXT_TRY_MS = RETRY_DELAY_MS_MAX + 1


def answering(code: int) -> Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse]:
    """The same response to every request."""

    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    return answer


async def tried(node: MarkerNode, times: int) -> None:
    """Moves the clock until the request was sent `times` times and its response is processed."""
    await take_turns()
    while len(node.requests) < times:
        node.clock.advance(NEXT_TRY_MS)
        await take_turns()


def asked_of(request: WriteTxnMarkersRequest) -> list[str]:
    return sorted(
        f"{marker.producer_id} {topic.name}-{index}"
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    )


async def test_every_partition_gets_its_marker(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        offsets = (CONSUMER_OFFSETS, node.groups.partition_for("g"))
        node.write("t", 0)
        node.write("t", 3)
        await node.commit_in_transaction("g", 5)
        assert await node.send(("t", 0), ("t", 3), offsets) is ErrorCode.NONE
        assert not node.is_open("t", 0)
        assert not node.is_open("t", 3)
        assert await node.stable_offset("g") == 5
        assert len(node.requests) == 1
        assert len(node.markers) == 0


async def test_transactions_that_end_together_share_a_request(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        done = [
            node.send(("t", n % 4), transactional_id=f"tx-{n}", producer_id=n) for n in range(20)
        ]
        assert set(await asyncio.gather(*done)) == {ErrorCode.NONE}
        assert len(node.requests) == 1
        assert len(node.requests[0].markers) == 20


async def test_a_transaction_without_partitions_is_done_after_its_turn(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        done = node.send()
        assert not done.done()
        assert await done is ErrorCode.NONE
        assert node.requests == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        31_000,
    ],
)
async def test_transient_errors_are_retried_until_they_pass(tmp_path: Path, code: int) -> None:
    async with running_markers(tmp_path) as node:
        node.write("t", 0)
        node.answers += [answering(code)] * 3
        done = node.send(("t", 0))
        await tried(node, 4)
        assert await done is ErrorCode.NONE
        assert len(node.requests) == 4
        assert not node.is_open("t", 0)


async def test_only_missing_markers_are_sent_again(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("x", number=2, partitions=2)
        node.change_partition(number=2, index=1, leader=NO_LEADER)
        node.write("t", 0)
        node.write("x", 0)
        done = node.send(("t", 0), ("x", 0), ("x", 1))
        await tried(node, 1)
        assert not done.done()
        assert asked_of(node.requests[0]) == ["7 t-0", "7 x-0"]
        node.clock.advance(NEXT_TRY_MS)
        await take_turns()
        assert len(node.requests) == 1, "it has no leader yet"
        node.change_partition(number=2, index=1, leader=1)
        await tried(node, 2)
        assert asked_of(node.requests[1]) == ["7 x-1"]
        assert await done is ErrorCode.NONE


async def test_a_log_that_is_not_there_gets_its_marker_when_it_is(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.write("t", 0)
        partition = node.replicas.lookup("t", 0)
        log = partition.log
        partition.lose_log(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is away"))
        done = node.send(("t", 0))
        await tried(node, 2)
        assert not done.done()
        partition.use_log(log)
        await tried(node, 3)
        assert await done is ErrorCode.NONE
        assert not node.is_open("t", 0)


async def test_partitions_of_deleted_topics_need_none(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("x", number=2)
        node.create_topic("y", number=3)
        node.delete_topic(2)
        node.answers.append(answering(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        done = node.send(("x", 0), ("y", 0), ("never", 0), ("t", 99))
        await tried(node, 1)
        assert asked_of(node.requests[0]) == ["7 y-0"]
        assert not done.done()
        node.delete_topic(3)
        node.clock.advance(NEXT_TRY_MS)
        assert await done is ErrorCode.NONE
        assert len(node.requests) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
async def test_a_fenced_coordinator_stops(tmp_path: Path, code: ErrorCode) -> None:
    async with running_markers(tmp_path) as node:
        node.answers.append(answering(code))
        assert await node.send(("t", 0), ("t", 1)) is code
        node.clock.advance(NEXT_TRY_MS)
        await take_turns()
        assert len(node.requests) == 1
        assert len(node.markers) == 0


async def test_a_real_fence_is_reported(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.write("t", 0)
        await node.end(("t", 0), coordinator_epoch=9)
        code = await node.send(("t", 0), coordinator_epoch=8)
        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_partitions_that_no_producer_can_have_written_need_none(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.answers.append(answering(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))
        assert await node.send(("t", 0)) is ErrorCode.NONE


async def test_a_broker_that_cannot_be_reached_is_tried_until_another_leads(
    tmp_path: Path,
) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("x", number=2, replicas=(2, 1))
        done = node.send(("x", 0))
        await take_turns()
        for _ in range(3):
            node.clock.advance(NEXT_TRY_MS)
            await take_turns()
        assert not done.done()
        assert node.requests == []
        node.change_partition(number=2, leader=1, isr=[1])
        await tried(node, 1)
        assert await done is ErrorCode.NONE


async def test_an_answer_that_leaves_something_out_is_not_taken_for_a_success(
    tmp_path: Path,
) -> None:
    async with running_markers(tmp_path) as node:
        node.answers.append(lambda _: WriteTxnMarkersResponse())
        done = node.send(("t", 0))
        await tried(node, 2)
        assert await done is ErrorCode.NONE


async def test_a_broker_that_does_not_respond_is_retried(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        silence: asyncio.Future[WriteTxnMarkersResponse] = asyncio.Future()
        node.answers.append(lambda _: silence)
        done = node.send(("t", 0))
        await take_turns()
        assert len(node.requests) == 1
        node.clock.advance(node.settings.current.request_timeout_ms + 1)
        await until(silence.cancelled)
        await tried(node, 2)
        assert await done is ErrorCode.NONE


async def test_a_failing_handler_is_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_markers(tmp_path) as node:

        def breaks(_: WriteTxnMarkersRequest) -> None:
            raise ZeroDivisionError

        node.answers.append(breaks)
        done = node.send(("t", 0))
        await tried(node, 2)
        assert await done is ErrorCode.NONE
        assert "WRITE_TXN_MARKERS failed unexpectedly" in caplog.text


async def test_nothing_is_reported_for_partitions_coordinated_elsewhere(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("__transaction_state", number=201, partitions=50)
        gate: asyncio.Future[WriteTxnMarkersResponse] = asyncio.Future()
        node.answers += [lambda _: gate, answering(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        in_flight = node.send(("t", 0), transactional_id="tx-a", producer_id=7)
        await take_turns()
        stays = node.send(("t", 1), transactional_id="tx-b", producer_id=8)
        await take_turns()
        assert len(node.requests) == 2
        node.markers.cancel(partition_for("tx-a", 50))
        gate.set_result(answering(ErrorCode.NONE)(node.requests[0]))
        await tried(node, 3)
        assert await stays is ErrorCode.NONE
        assert not in_flight.done()
        assert len(node.markers) == 0


async def test_the_latest_word_of_a_transactional_id_counts(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.write("t", 0)
        forgotten = node.send(("t", 0), commits=True)
        done = node.send(("t", 0), commits=False)
        assert await done is ErrorCode.NONE
        assert not forgotten.done()
        assert [m.transaction_result for r in node.requests for m in r.markers] == [False]


async def test_a_slow_broker_does_not_gather_requests_without_end(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        gates = [asyncio.Future[WriteTxnMarkersResponse]() for _ in range(REQUESTS_IN_FLIGHT_MAX)]
        node.answers += [lambda _, gate=gate: gate for gate in gates]  # type: ignore[misc]
        done = []
        for number in range(30):
            done.append(node.send(("t", 0), transactional_id=f"tx-{number}", producer_id=number))
            await take_turns()
        assert len(node.requests) == REQUESTS_IN_FLIGHT_MAX
        gates[0].set_result(answering(ErrorCode.NONE)(node.requests[0]))
        await until(lambda: sum(each.done() for each in done) == 26)
        assert len(node.requests) == REQUESTS_IN_FLIGHT_MAX + 1
        assert len(node.requests[-1].markers) == 25


async def test_a_stop_ends_requests_in_flight(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        silence: asyncio.Future[WriteTxnMarkersResponse] = asyncio.Future()
        node.answers.append(lambda _: silence)
        done = node.send(("t", 0))
        await take_turns()
        await node.markers.stop()
        assert silence.cancelled()
        assert not done.done()


async def test_a_failing_callback_does_not_stop_the_others(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context["exception"])
        )
        broken = node.send(("t", 0), transactional_id="a", producer_id=1)
        broken.set_result(ErrorCode.NONE)  # so that setting it again raises
        fine = node.send(("t", 0), transactional_id="b", producer_id=2)
        assert await fine is ErrorCode.NONE
        assert [type(error) for error in told] == [asyncio.InvalidStateError]


async def test_markers_half_sent_are_sent_again_after_a_crash(tmp_path: Path) -> None:
    """A coordinator that comes back sends markers to all partitions; those that have theirs accept
    it again.
    """
    async with running_markers(tmp_path) as node:
        for index in range(4):
            node.write("t", index, (7, 3))
        node.change_partition(number=1, index=3, leader=NO_LEADER)
        values = {"producer_epoch": 4, "transaction_version": 2, "commits": False}
        places = [("t", index) for index in range(4)]
        done = node.send(*places, **values)
        await tried(node, 1)
        assert not done.done()
        await node.crash()
        await node.start()
        node.change_partition(number=1, index=3, leader=1)
        assert node.is_open("t", 3)
        assert await node.send(*places, coordinator_epoch=1, **values) is ErrorCode.NONE
        assert not any(node.is_open(*place) for place in places)
        codes = await node.end(*places, producer_epoch=4, coordinator_epoch=1)
        assert set(codes.values()) == {ErrorCode.NONE}
