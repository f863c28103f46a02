"""WriteTxnMarkers: what ends a transaction on a partition, what is refused, and when it takes
effect.
"""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from broker.data_node import directory_id
from broker.group_node import OFFSETS_TOPIC_NUMBER
from broker.marker_node import marker, running_markers
from support.waiting import until

from moldau.broker.handlers.write_txn_markers import AT_ONCE
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.types import BrokerId, Offset, TopicPartition


async def test_a_marker_ends_the_transaction(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.write("t", 0)
        node.write("t", 1)
        assert node.is_open("t", 0)
        codes = await node.end(("t", 0), ("t", 1))
        assert set(codes.values()) == {ErrorCode.NONE}
        assert not node.is_open("t", 0)
        assert not node.is_open("t", 1)
        log = node.replicas.lookup("t", 0).log
        assert (log.log_end_offset, log.high_watermark) == (2, 2)


async def test_a_partition_that_cannot_take_its_marker_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("away", number=2, replicas=(2,))
        node.create_topic("both", number=3, replicas=(1, 2))
        node.change_partition(number=3, leader=2)
        node.write("t", 0)
        codes = await node.end(("t", 9), ("none", 0), ("away", 0), ("both", 0), ("t", 0))
        assert {str(place): code for place, code in codes.items()} == {
            "t-9": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "away-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "both-0": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "t-0": ErrorCode.NONE,
        }
        assert not node.is_open("t", 0)


async def test_answers_for_one_producer_are_together(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        request = WriteTxnMarkersRequest(
            markers=[
                marker(("t", 0), producer_id=7),
                marker(("t", 0), producer_id=8),
                marker(("t", 1), ("t", 9), producer_id=7),
            ]
        )
        answer = await node.ask(request, 2)
        assert [result.producer_id for result in answer.markers] == [7, 8]
        assert [p.partition_index for p in answer.markers[0].topics[0].partitions] == [0, 1, 9]
        assert (await node.ask(WriteTxnMarkersRequest(), 1)).markers == []


async def test_others_have_their_turn_between_many_markers(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        node.create_topic("many", number=2, partitions=60)
        await node.replicas.wait_caught_up()
        places = [TopicPartition("many", index) for index in range(60)]
        logs = [node.replicas.lookup(*place).log for place in places]
        ending = asyncio.ensure_future(node.end(*places))
        written = [0]
        while written[-1] < len(places):
            await asyncio.sleep(0)
            written.append(sum(log.log_end_offset for log in logs))
        steps = [after - before for before, after in pairwise(written)]
        assert max(steps) == AT_ONCE
        assert await ending == dict.fromkeys(places, ErrorCode.NONE)


@pytest.mark.parametrize("shape", ["markers", "topics", "indexes"])
async def test_others_have_their_turn_between_parts_without_markers(
    tmp_path: Path, shape: str
) -> None:
    count = 10_000
    async with running_markers(tmp_path) as node:
        only = marker(("t", 0))
        if shape == "markers":
            only.topics = []
        elif shape == "topics":
            only.topics = [WritableTxnMarkerTopic(name="t")] * count
        else:
            only.topics[0].partition_indexes = [0] * count
        request = WriteTxnMarkersRequest(markers=[only] * (count if shape == "markers" else 1))
        answering = asyncio.ensure_future(node.ask(request, 1))
        turns = 0
        while not answering.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 10
        assert len(answering.result().markers) == (shape == "indexes")


async def test_a_cancelled_request_leaves_nothing(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        # The other replica never fetches.
        node.create_topic("slow", number=2, partitions=2 * AT_ONCE, replicas=(1, 2))
        await node.replicas.wait_caught_up()
        ending = asyncio.ensure_future(node.end(*(("slow", i) for i in range(2 * AT_ONCE))))
        first, last = (node.replicas.lookup("slow", i).log for i in (0, 2 * AT_ONCE - 1))
        # Every turn of the loop: the second part is written in one of the next ones.
        while first.log_end_offset == 0:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert last.log_end_offset == 0


async def test_an_old_coordinator_and_an_old_producer_are_fenced(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        place = TopicPartition("t", 0)
        node.write("t", 0, (7, 3))
        assert await node.end(place, producer_epoch=3, coordinator_epoch=5) == {
            place: ErrorCode.NONE
        }
        node.write("t", 0, (7, 3))
        assert await node.end(place, producer_epoch=3, coordinator_epoch=4) == {
            place: ErrorCode.TRANSACTION_COORDINATOR_FENCED
        }
        assert await node.end(place, producer_epoch=2, coordinator_epoch=5) == {
            place: ErrorCode.INVALID_PRODUCER_EPOCH
        }
        assert node.is_open("t", 0)
        assert await node.end(place, producer_epoch=3, coordinator_epoch=6) == {
            place: ErrorCode.NONE
        }
        assert not node.is_open("t", 0)


async def test_a_marker_without_a_valid_producer_is_refused(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        places = [
            TopicPartition("t", 0),
            TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for("g")),
        ]
        for field in ("producer_id", "producer_epoch", "transaction_version"):
            codes = await node.end(*places, **{field: -1})
            assert codes == dict.fromkeys(places, ErrorCode.INVALID_REQUEST), field
        assert [node.replicas.lookup(*place).log.log_end_offset for place in places] == [0, 0]


async def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """From transaction version 2 every end has its own epoch; repeating it is harmless."""
    async with running_markers(tmp_path) as node:
        place = TopicPartition("t", 0)
        node.write("t", 0, (7, 3))
        for _ in range(2):
            codes = await node.end(place, producer_epoch=4, transaction_version=2)
            assert codes == {place: ErrorCode.NONE}
        node.write("t", 0, (7, 4))
        codes = await node.end(place, producer_epoch=4, transaction_version=2)
        assert codes == {place: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert node.is_open("t", 0)


async def test_an_answer_waits_for_the_commit_but_not_for_ever(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        # The other replica never fetches.
        node.create_topic("slow", number=2, replicas=(1, 2))
        ending = asyncio.ensure_future(node.end(("slow", 0), ("t", 0)))
        log = node.replicas.lookup("slow", 0).log
        await until(lambda: log.log_end_offset == 1)
        await until(lambda: node.replicas.lookup("t", 0).is_committed(Offset(0)))
        assert not ending.done()
        node.clock.advance(node.settings.current.request_timeout_ms + 1)
        assert await ending == {
            TopicPartition("slow", 0): ErrorCode.REQUEST_TIMED_OUT,
            TopicPartition("t", 0): ErrorCode.NONE,
        }


async def test_offsets_become_visible_with_the_committed_marker(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        place = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for("g"))
        assert await node.commit_offset("g", 1) == ErrorCode.NONE
        assert await node.commit_in_transaction("g", 5) == ErrorCode.NONE
        assert await node.fetch_offset("g") == 1
        assert await node.stable_offset("g") == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await node.end(place) == {place: ErrorCode.NONE}
        assert await node.fetch_offset("g") == 5
        assert await node.stable_offset("g") == 5
        assert await node.commit_in_transaction("g", 6) == ErrorCode.NONE
        assert await node.end(place, transaction_result=False) == {place: ErrorCode.NONE}
        assert await node.stable_offset("g") == 5


async def test_offsets_are_invisible_before_the_marker_is_committed(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        index = node.groups.partition_for("g")
        await node.commit_in_transaction("g", 5)
        node.change_partition(
            number=OFFSETS_TOPIC_NUMBER,
            index=index,
            replicas=[1, 2],
            isr=[1, 2],
            directories=[directory_id(0)] * 2,
        )
        place = TopicPartition(CONSUMER_OFFSETS, index)
        partition = node.replicas.lookup(*place)
        ending = asyncio.ensure_future(node.end(place))
        fetching = asyncio.ensure_future(node.fetch_offset("g"))
        end = partition.log.log_end_offset
        await until(lambda: partition.log.log_end_offset > end)
        assert not ending.done()
        assert not fetching.done()
        partition.follower_fetched(BrokerId(2), partition.log.log_end_offset)
        assert await ending == {place: ErrorCode.NONE}
        assert await fetching == 5


async def test_a_group_coordinator_that_is_not_ready_is_retried_later(tmp_path: Path) -> None:
    async with running_markers(tmp_path) as node:
        index = node.groups.partition_for("g")
        place = TopicPartition(CONSUMER_OFFSETS, index)
        await node.commit_in_transaction("g", 5, (7, 1))
        await node.restart()
        assert await node.end(place) == {place: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await node.groups.wait_loaded()
        assert await node.stable_offset("g") == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await node.end(place, producer_epoch=0) == {place: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await node.stable_offset("g") == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await node.end(place, producer_epoch=1) == {place: ErrorCode.NONE}
        await node.restart()
        await node.groups.wait_loaded()
        assert await node.stable_offset("g") == 5
