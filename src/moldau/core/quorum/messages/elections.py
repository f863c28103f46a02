"""Vote, BeginQuorumEpoch and EndQuorumEpoch."""

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import (
    Receiver,
    Sender,
    check_answered,
    endpoints_of,
    leader_nodes,
    leadership_of,
    listed,
    only_partition,
    other_partition,
    voter_of,
)
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import error_code
from moldau.protocol.messages import begin_quorum_epoch as begin
from moldau.protocol.messages import end_quorum_epoch as end
from moldau.protocol.messages import vote
from moldau.types import METADATA_PARTITION, ZERO_UUID, BrokerId, LeaderEpoch, Offset

_TOPIC = METADATA_PARTITION.topic
_NO_VOTER = VoterKey(BrokerId(-1), ZERO_UUID)
_ENDPOINTS_SINCE_VERSION = 1


# Vote


def vote_request(request: rpc.VoteRequest, sender: Sender) -> vote.VoteRequest:
    voter = request.voter or _NO_VOTER
    partition = vote.VoteRequestPartitionData(
        partition_index=METADATA_PARTITION.partition,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.is_pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=sender.cluster_id,
        voter_id=voter.node_id,
        topics=[vote.VoteRequestTopicData(topic_name=_TOPIC, partitions=[partition])],
    )


def read_vote_request(
    message: vote.VoteRequest, receiver: Receiver
) -> rpc.VoteRequest | vote.VoteResponse:
    if not receiver.is_of(message.cluster_id):
        return vote.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = only_partition(message.topics)
    if partition is None:
        return vote.VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    return rpc.VoteRequest(
        epoch=LeaderEpoch(partition.replica_epoch),
        candidate=VoterKey(BrokerId(partition.replica_id), partition.replica_directory_id),
        last=LogPosition(LeaderEpoch(partition.last_offset_epoch), Offset(partition.last_offset)),
        is_pre_vote=partition.pre_vote,
        voter=voter_of(message.voter_id, partition.voter_directory_id),
    )


def vote_response(response: rpc.VoteResponse, version: int, listener: str) -> vote.VoteResponse:
    leadership = response.leadership
    partition = vote.VoteResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_code=response.error,
        leader_id=leadership.leader_id,
        leader_epoch=leadership.epoch,
        vote_granted=response.is_granted,
    )
    message = vote.VoteResponse(
        topics=[vote.VoteResponseTopicData(topic_name=_TOPIC, partitions=[partition])]
    )
    if version >= _ENDPOINTS_SINCE_VERSION:
        message.node_endpoints = leader_nodes(leadership, listener, vote.NodeEndpoint)
    return message


def read_vote_response(message: vote.VoteResponse, listener: str) -> rpc.VoteResponse:
    check_answered(message.error_code)
    partition = only_partition(message.topics)
    if partition is None:
        raise other_partition()
    return rpc.VoteResponse(
        error=error_code(partition.error_code),
        leadership=leadership_of(
            partition.leader_epoch, partition.leader_id, message.node_endpoints, listener
        ),
        is_granted=partition.vote_granted,
    )


# BeginQuorumEpoch


def begin_request(
    request: rpc.BeginQuorumEpochRequest, sender: Sender
) -> begin.BeginQuorumEpochRequest:
    voter = request.voter or _NO_VOTER
    partition = begin.BeginQuorumEpochRequestPartitionData(
        partition_index=METADATA_PARTITION.partition,
        voter_directory_id=voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        voter_id=voter.node_id,
        topics=[begin.BeginQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[partition])],
        leader_endpoints=listed(request.endpoints, begin.LeaderEndpoint),
    )


def read_begin_request(
    message: begin.BeginQuorumEpochRequest, receiver: Receiver
) -> rpc.BeginQuorumEpochRequest | begin.BeginQuorumEpochResponse:
    if not receiver.is_of(message.cluster_id):
        return begin.BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = only_partition(message.topics)
    if partition is None:
        return begin.BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    return rpc.BeginQuorumEpochRequest(
        epoch=LeaderEpoch(partition.leader_epoch),
        leader_id=BrokerId(partition.leader_id),
        endpoints=endpoints_of(message.leader_endpoints),
        voter=voter_of(message.voter_id, partition.voter_directory_id),
    )


def begin_response(
    response: rpc.QuorumEpochResponse, version: int, listener: str
) -> begin.BeginQuorumEpochResponse:
    leadership = response.leadership
    partition = begin.BeginQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_code=response.error,
        leader_id=leadership.leader_id,
        leader_epoch=leadership.epoch,
    )
    topic = begin.BeginQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[partition])
    message = begin.BeginQuorumEpochResponse(topics=[topic])
    if version >= _ENDPOINTS_SINCE_VERSION:
        message.node_endpoints = leader_nodes(leadership, listener, begin.NodeEndpoint)
    return message


# EndQuorumEpoch


def end_request(request: rpc.EndQuorumEpochRequest, sender: Sender) -> end.EndQuorumEpochRequest:
    candidates = [
        end.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
        for key in request.successors
    ]
    partition = end.EndQuorumEpochRequestPartitionData(
        partition_index=METADATA_PARTITION.partition,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.successors],
        preferred_candidates=candidates,
    )
    return end.EndQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        topics=[end.EndQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[partition])],
        leader_endpoints=listed(request.endpoints, end.LeaderEndpoint),
    )


def read_end_request(
    message: end.EndQuorumEpochRequest, receiver: Receiver
) -> rpc.EndQuorumEpochRequest | end.EndQuorumEpochResponse:
    if not receiver.is_of(message.cluster_id):
        return end.EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = only_partition(message.topics)
    if partition is None:
        return end.EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    successors = [
        VoterKey(BrokerId(each.candidate_id), each.candidate_directory_id)
        for each in partition.preferred_candidates
    ] or [VoterKey(BrokerId(node_id)) for node_id in partition.preferred_successors]
    return rpc.EndQuorumEpochRequest(
        epoch=LeaderEpoch(partition.leader_epoch),
        leader_id=BrokerId(partition.leader_id),
        endpoints=endpoints_of(message.leader_endpoints),
        successors=tuple(successors),
    )


def end_response(
    response: rpc.QuorumEpochResponse, version: int, listener: str
) -> end.EndQuorumEpochResponse:
    leadership = response.leadership
    partition = end.EndQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_code=response.error,
        leader_id=leadership.leader_id,
        leader_epoch=leadership.epoch,
    )
    topic = end.EndQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[partition])
    message = end.EndQuorumEpochResponse(topics=[topic])
    if version >= _ENDPOINTS_SINCE_VERSION:
        message.node_endpoints = leader_nodes(leadership, listener, end.NodeEndpoint)
    return message


def read_epoch_response(
    message: begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse, listener: str
) -> rpc.QuorumEpochResponse:
    check_answered(message.error_code)
    partition = only_partition(message.topics)
    if partition is None:
        raise other_partition()
    return rpc.QuorumEpochResponse(
        error=error_code(partition.error_code),
        leadership=leadership_of(
            partition.leader_epoch, partition.leader_id, message.node_endpoints, listener
        ),
    )
