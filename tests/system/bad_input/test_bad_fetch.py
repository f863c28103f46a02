"""Readers that request what does not exist, or with senseless arguments.

The ids are the rows of the project's list of bad inputs, group F.
"""

from typing import Any

import pytest
from support.running_node import KafkaUnderTest, fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from system.bad_input.test_bad_produce import batch, producing

from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.types import Uuid

BY_NAME, BY_ID = 12, 17
OUT_OF_RANGE, UNKNOWN_PARTITION, INVALID_TOPIC, INVALID_REQUEST = 1, 3, 17, 42
POLICY_VIOLATION, NO_SESSION, BAD_SESSION_EPOCH = 44, 70, 71
FENCED_EPOCH, FUTURE_EPOCH, UNKNOWN_ID = 74, 75, 100


class Filled:
    """A topic with five batches of one record."""

    def __init__(self, address: str) -> None:
        self.name = fresh_name("bad-fetch")
        self.topic_id = Uuid(create_topic(address, self.name))
        with WireClient(address) as client:
            for _ in range(5):
                client.ask(producing(self.name, (0, bytes(batch()))), 9)


@pytest.fixture(scope="module")
def filled(victim: KafkaUnderTest) -> Filled:
    return Filled(victim.address)


def asking(topic: Filled, offset: int = 0, epoch: int = -1, **more: Any) -> FetchRequest:
    part = FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
    )
    options = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1} | more
    wanted = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[part])
    return FetchRequest(topics=[wanted], **options)


def only(response: Any) -> Any:
    ((part,),) = [topic.partitions for topic in response.responses]
    return part


@pytest.mark.parametrize("offset", [-1, -5, 6, 2**62])
def test_bi_105_offsets_that_are_not_there(client: WireClient, filled: Filled, offset: int) -> None:
    assert only(client.ask(asking(filled, offset), BY_NAME)).error_code == OUT_OF_RANGE


def test_the_end_is_there_and_empty(client: WireClient, filled: Filled) -> None:
    answer = only(client.ask(asking(filled, 5), BY_NAME))
    assert (answer.error_code, bytes(answer.records or b"")) == (0, b"")


@pytest.mark.parametrize(("epoch", "code"), [(1000, FUTURE_EPOCH), (0, 0)])
def test_bi_106_epochs_of_the_past_and_of_the_future(
    client: WireClient, filled: Filled, epoch: int, code: int
) -> None:
    assert only(client.ask(asking(filled, 0, epoch), BY_NAME)).error_code == code


def test_bi_107_sessions_that_are_not_there(client: WireClient, filled: Filled) -> None:
    unknown = asking(filled, session_id=123456, session_epoch=1)
    assert client.ask(unknown, BY_NAME).error_code == NO_SESSION
    session_id = client.ask(asking(filled, session_epoch=0), BY_NAME).session_id
    assert session_id > 0
    ahead = FetchRequest(session_id=session_id, session_epoch=7, max_bytes=1000)
    assert client.ask(ahead, BY_NAME).error_code == BAD_SESSION_EPOCH


def test_bi_107_a_session_keeps_to_names_or_ids(client: WireClient, filled: Filled) -> None:
    session_id = client.ask(asking(filled, session_epoch=0), BY_NAME).session_id
    mixed = FetchRequest(session_id=session_id, session_epoch=1, max_bytes=1000)
    assert client.ask(mixed, BY_ID).error_code == 106


def test_bi_108_more_sessions_than_there_is_room_are_served_without(
    client: WireClient, filled: Filled
) -> None:
    answers = [client.ask(asking(filled, session_epoch=0), BY_NAME) for _ in range(1_200)]
    assert {answer.error_code for answer in answers} == {0}
    assert answers[-1].session_id == 0
    assert only(answers[-1]).records


def test_bi_109_a_fetch_that_would_wait_for_ever_delays_no_other(
    victim: KafkaUnderTest, filled: Filled, client: WireClient
) -> None:
    with WireClient(victim.address) as waiting:
        forever = 2**31 - 1
        waiting.send(asking(filled, 5, max_wait_ms=forever, min_bytes=forever), BY_NAME)
        assert only(client.ask(asking(filled), BY_NAME)).records


@pytest.mark.parametrize("max_wait_ms", [-1, -(2**31)])
def test_bi_110_negative_waits_are_none(
    client: WireClient, filled: Filled, max_wait_ms: int
) -> None:
    request = asking(filled, 5, max_wait_ms=max_wait_ms, min_bytes=1)
    assert only(client.ask(request, BY_NAME)).error_code == 0


@pytest.mark.parametrize("topic_id", [Uuid(bytes(16)), Uuid(bytes(range(16)))])
def test_bi_111_unknown_topic_ids(client: WireClient, filled: Filled, topic_id: Uuid) -> None:
    request = asking(filled)
    request.topics[0].topic_id = topic_id
    assert only(client.ask(request, BY_ID)).error_code == UNKNOWN_ID


def test_bi_112_no_bytes_allowed_still_gives_the_first_batch(
    client: WireClient, filled: Filled
) -> None:
    request = asking(filled, max_bytes=0, partition_max_bytes=0)
    assert only(client.ask(request, BY_NAME)).records


def test_bi_112_fewer_than_no_bytes_is_refused(client: WireClient, filled: Filled) -> None:
    request = asking(filled, max_bytes=-1)
    assert only(client.ask(request, BY_NAME)).error_code == INVALID_REQUEST


@pytest.mark.parametrize("isolation_level", [2, -1])
def test_isolation_levels_that_do_not_exist(
    client: WireClient, filled: Filled, isolation_level: int
) -> None:
    request = asking(filled, isolation_level=isolation_level)
    assert only(client.ask(request, BY_NAME)).error_code == INVALID_REQUEST


def test_bi_064_a_client_does_not_pose_as_a_replica(client: WireClient, filled: Filled) -> None:
    request = asking(filled, replica_id=1)
    assert only(client.ask(request, BY_NAME)).error_code == 29


def test_a_partition_that_does_not_exist(client: WireClient, filled: Filled) -> None:
    request = asking(filled)
    request.topics[0].partitions[0].partition = 77
    assert only(client.ask(request, BY_NAME)).error_code == UNKNOWN_PARTITION


def test_bi_113_a_partition_twice_in_list_offsets(client: WireClient, filled: Filled) -> None:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=filled.name, partitions=[part, part])
    response = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    codes = {each.error_code for topic in response.topics for each in topic.partitions}
    assert codes == {INVALID_REQUEST}


def deleting(name: str, offset: int) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=name, partitions=[part])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


@pytest.mark.parametrize("offset", [6, 10_000, -2])
def test_bi_114_records_beyond_the_end_are_not_deleted(
    client: WireClient, filled: Filled, offset: int
) -> None:
    assert only_deleted(client.ask(deleting(filled.name, offset), 2)) == OUT_OF_RANGE


def test_bi_114_compacted_records_are_not_deleted(
    client: WireClient, victim: KafkaUnderTest
) -> None:
    name = fresh_name("compacted")
    create_topic(victim.address, name, configs={"cleanup.policy": "compact"})
    assert only_deleted(client.ask(deleting(name, 0), 2)) == POLICY_VIOLATION


def test_bi_114_internal_records_are_not_deleted(client: WireClient) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["anybody"])
    wait_for(lambda: client.ask(request, 4).coordinators[0].error_code == 0, "a coordinator")
    assert only_deleted(client.ask(deleting("__consumer_offsets", 0), 2)) == INVALID_TOPIC


def only_deleted(response: Any) -> int:
    ((part,),) = [topic.partitions for topic in response.topics]
    return int(part.error_code)
