"""Requests about another cluster or partition are refused as Kafka refuses them."""

from dataclasses import replace
from typing import Any

import pytest

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import Receiver
from moldau.core.quorum.messages.translation import (
    API_OF,
    read_request,
    read_response,
    response_message,
)
from moldau.core.quorum.voters import VoterEndpoint
from moldau.protocol import messages as m
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    response_class,
    update_raft_voter,
    vote,
)
from moldau.protocol.wire.codec import encode
from moldau.protocol.wire.schema import Message
from moldau.types import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Uuid,
)

CLUSTER = "Y2x1c3RlciBvZiB0ZXN0cw"
LISTENER = "CONTROLLER"
LEADERSHIP = rpc.Leadership(LeaderEpoch(7), BrokerId(2), (VoterEndpoint(LISTENER, "host-2", 9093),))
RECEIVER = Receiver(CLUSTER, LISTENER, LEADERSHIP)
OF_A_PARTITION = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
)


def refusal(api_key: ApiKey, code: int) -> Message:
    """A response with an error of the whole request, and nothing else."""
    answer_class: Any = response_class(api_key)
    message: Message = answer_class(error_code=code)
    return message


# Refusals

TOPIC, PARTITION = METADATA_PARTITION


def vote_for(*topics: tuple[str, list[int]], cluster_id: str | None = CLUSTER) -> Message:
    return vote.VoteRequest(
        cluster_id=cluster_id,
        topics=[
            vote.VoteRequestTopicData(
                topic_name=name,
                partitions=[vote.VoteRequestPartitionData(partition_index=n) for n in numbers],
            )
            for name, numbers in topics
        ],
    )


def begin_of(*topics: tuple[str, list[int]], cluster_id: str | None = CLUSTER) -> Message:
    made = [
        begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
            topic_name=name,
            partitions=[
                begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(partition_index=n)
                for n in numbers
            ],
        )
        for name, numbers in topics
    ]
    return begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id=cluster_id, topics=made)


def end_of(*topics: tuple[str, list[int]], cluster_id: str | None = CLUSTER) -> Message:
    made = [
        end_quorum_epoch.EndQuorumEpochRequestTopicData(
            topic_name=name,
            partitions=[
                end_quorum_epoch.EndQuorumEpochRequestPartitionData(partition_index=n)
                for n in numbers
            ],
        )
        for name, numbers in topics
    ]
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=cluster_id, topics=made)


def fetch_of(*topics: tuple[str, list[int]], cluster_id: str | None = CLUSTER) -> Message:
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        topics=[
            fetch.FetchTopic(
                topic_id=METADATA_TOPIC_ID if name == TOPIC else Uuid(b"u" * 16),
                partitions=[fetch.FetchPartition(partition=n) for n in numbers],
            )
            for name, numbers in topics
        ],
    )


def snapshot_of(*topics: tuple[str, list[int]], cluster_id: str | None = CLUSTER) -> Message:
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        topics=[
            fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
                name=name,
                partitions=[
                    fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(partition=n)
                    for n in numbers
                ],
            )
            for name, numbers in topics
        ],
    )


MAKERS = [vote_for, begin_of, end_of, fetch_of, snapshot_of]
OTHER_SHAPES: list[list[tuple[str, list[int]]]] = [
    [],
    [(TOPIC, [])],
    [("", [])],
    [(TOPIC, [0, 0])],
    [(TOPIC, [0]), (TOPIC, [0])],
    [(TOPIC, []), (TOPIC, [0])],
    [("other", [0])],
    [(TOPIC, [1])],
    [(TOPIC, [-1])],
    [(TOPIC, [0]), ("other", [0])],
    [("other", [0, 1]), (TOPIC, [0])],
    [("other", [0, 1]), ("other", [])],
]


@pytest.mark.parametrize("make", MAKERS[:-1])
@pytest.mark.parametrize("topics", OTHER_SHAPES, ids=repr)
def test_only_the_one_metadata_partition_is_served(
    make: Any, topics: list[tuple[str, list[int]]]
) -> None:
    request = make(*topics)
    answer: Any = read_request(request, request.VERSIONS[1], RECEIVER)
    expected = refusal(ApiKey(request.API_KEY), ErrorCode.INVALID_REQUEST)
    assert encode(answer, request.VERSIONS[1]) == encode(expected, request.VERSIONS[1])


INVALID, UNKNOWN = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SNAPSHOT_SHAPES: list[tuple[list[tuple[str, list[int]]], ErrorCode]] = [
    ([], INVALID),
    ([(TOPIC, [])], INVALID),
    ([("", [])], INVALID),
    ([(TOPIC, []), (TOPIC, [0])], INVALID),
    ([("other", [0, 1]), (TOPIC, [0])], INVALID),
    ([("other", [0, 1]), ("other", [])], INVALID),
    ([(TOPIC, [0, 0])], ErrorCode.NONE),
    ([(TOPIC, [0]), (TOPIC, [0])], ErrorCode.NONE),
    ([(TOPIC, [0]), ("other", [0])], ErrorCode.NONE),
    ([("other", [0]), (TOPIC, [1, 0])], ErrorCode.NONE),
    ([("other", [0])], UNKNOWN),
    ([(TOPIC, [1])], UNKNOWN),
    ([(TOPIC, [-1])], UNKNOWN),
    ([("other", [5]), ("other", [])], UNKNOWN),
]


@pytest.mark.parametrize(("topics", "expected"), SNAPSHOT_SHAPES, ids=repr)
@pytest.mark.parametrize("version", [0, 1])
def test_a_request_for_a_snapshot_may_have_any_shape(
    version: int, topics: list[tuple[str, list[int]]], expected: ErrorCode
) -> None:
    answer = read_request(snapshot_of(*topics), version, RECEIVER)
    if expected is ErrorCode.NONE:
        assert isinstance(answer, rpc.FetchSnapshotRequest)
        return
    assert isinstance(answer, fetch_snapshot.FetchSnapshotResponse)
    if expected is INVALID:
        assert (answer.error_code, answer.topics) == (INVALID, [])
        return
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.index) == (topics[0][0], topics[0][1][0])
    assert (answer.error_code, partition.error_code) == (ErrorCode.NONE, UNKNOWN)
    assert [each.node_id for each in answer.node_endpoints] == ([2] if version else [])


@pytest.mark.parametrize("make", MAKERS)
def test_another_clusters_nodes_are_refused(make: Any) -> None:
    request = make((TOPIC, [0]), cluster_id="another")
    answer: Any = read_request(request, request.VERSIONS[1], RECEIVER)
    expected = refusal(ApiKey(request.API_KEY), ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert encode(answer, request.VERSIONS[1]) == encode(expected, request.VERSIONS[1])


@pytest.mark.parametrize("make", MAKERS)
def test_the_cluster_need_not_be_named(make: Any) -> None:
    request = make((TOPIC, [0]), cluster_id=None)
    read = read_request(request, request.VERSIONS[1], RECEIVER)
    assert API_OF[type(read)] == request.API_KEY  # type: ignore[index]


def test_changes_of_another_clusters_voters_are_refused() -> None:
    for request in (
        m.AddRaftVoterRequest(cluster_id="another"),
        m.RemoveRaftVoterRequest(cluster_id="another"),
    ):
        answer: Any = read_request(request, 0, RECEIVER)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert answer.error_message == (
            f'The given id "another" doesn\'t match the cluster id "{CLUSTER}"'
        )
    update = read_request(m.UpdateRaftVoterRequest(cluster_id="another"), 0, RECEIVER)
    assert isinstance(update, update_raft_voter.UpdateRaftVoterResponse)
    leader = update.current_leader
    assert update.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (leader.leader_id, leader.leader_epoch) == (2, 7)
    assert (leader.host, leader.port) == ("host-2", 9093)


# Addresses


def test_of_listeners_with_one_name_the_first_counts() -> None:
    listeners = [("A", "x", 1), ("A", "y", 2), ("b", "z", 3)]
    request = m.AddRaftVoterRequest(
        cluster_id=CLUSTER,
        voter_id=3,
        listeners=[add_raft_voter.Listener(name=n, host=h, port=p) for n, h, p in listeners],
    )
    read = read_request(request, 1, RECEIVER)
    assert isinstance(read, rpc.AddVoterRequest)
    assert read.endpoints == (VoterEndpoint("A", "x", 1), VoterEndpoint("B", "z", 3))


def test_the_leaders_address_is_that_of_the_listener_of_the_request() -> None:
    two = (VoterEndpoint("CONTROLLER", "inside", 1), VoterEndpoint("SSL", "outside", 2))
    response = rpc.VoteResponse(leadership=replace(LEADERSHIP, endpoints=two))
    for listener, host in (("ssl", "outside"), ("CONTROLLER", "inside")):
        message: Any = response_message(response, m.VoteRequest(), 2, listener)
        assert [each.host for each in message.node_endpoints] == [host]
    message = response_message(response, m.VoteRequest(), 2, "OTHER")
    assert message.node_endpoints == []


def test_a_leader_without_an_address_is_named_all_the_same() -> None:
    for host, port in (("", 9093), ("host", 70_000), ("host", -1)):
        node = fetch.NodeEndpoint(node_id=2, host=host, port=port)
        other = fetch.NodeEndpoint(node_id=3, host="other", port=1)
        message = fetched(node_endpoints=[other, node])
        read = read_response(message, LISTENER)
        assert isinstance(read, rpc.FetchResponse)
        assert read.leadership == rpc.Leadership(LeaderEpoch(7), BrokerId(2))


# Responses


def fetched(**fields: Any) -> fetch.FetchResponse:
    data = fetch.PartitionData(
        current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
        **fields.pop("partition", {}),
    )
    topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])
    return fetch.FetchResponse(responses=[topic], **fields)


@pytest.mark.parametrize("api_key", OF_A_PARTITION)
@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 29_999])
def test_an_error_of_the_whole_request_is_raised(api_key: ApiKey, code: int) -> None:
    with pytest.raises(KafkaError) as caught:
        read_response(refusal(api_key, code), LISTENER)
    known = ErrorCode(code) if code < 29_999 else ErrorCode.UNKNOWN_SERVER_ERROR
    assert caught.value.code is known


@pytest.mark.parametrize("api_key", OF_A_PARTITION)
def test_a_response_about_something_else_is_refused(api_key: ApiKey) -> None:
    with pytest.raises(KafkaError, match="not about"):
        read_response(response_class(api_key)(), LISTENER)


def test_unknown_errors_of_newer_nodes_are_read() -> None:
    message = fetched(partition={"error_code": 29_999})
    read = read_response(message, LISTENER)
    assert isinstance(read, rpc.FetchResponse)
    assert read.error is ErrorCode.UNKNOWN_SERVER_ERROR
    change = read_response(add_raft_voter.AddRaftVoterResponse(error_code=29_999), LISTENER)
    assert isinstance(change, rpc.ChangeVotersResponse)
    assert change.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_logs_cannot_diverge_before_their_start() -> None:
    diverging = fetch.EpochEndOffset(epoch=3, end_offset=-1)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        read_response(fetched(partition={"diverging_epoch": diverging}), LISTENER)


def test_a_snapshot_that_is_not_named_is_gone() -> None:
    for epoch, offset in ((-1, 5), (5, -1), (-1, -1)):
        partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
            snapshot_id=fetch_snapshot.FetchSnapshotResponseSnapshotId(
                epoch=epoch, end_offset=offset
            )
        )
        topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
            name=TOPIC, partitions=[partition]
        )
        read = read_response(fetch_snapshot.FetchSnapshotResponse(topics=[topic]), LISTENER)
        assert isinstance(read, rpc.FetchSnapshotResponse)
        assert read.snapshot is None
