"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, and the question to a new voter:
ApiVersions.
"""

from moldau import __version__
from moldau.core.metadata.image import KRAFT_VERSION
from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import (
    Receiver,
    Sender,
    address_at,
    endpoint_at,
    endpoints_of,
    listed,
)
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import error_code
from moldau.protocol.messages import add_raft_voter as add
from moldau.protocol.messages import remove_raft_voter as remove
from moldau.protocol.messages import update_raft_voter as update
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.types import NO_LEADER, BrokerId, LeaderEpoch

# Texts may quote names from the request, and a longer text cannot be sent.
_TEXT_CHARS_MAX = 5_000

# AddRaftVoter


def add_request(request: rpc.AddVoterRequest, sender: Sender) -> add.AddRaftVoterRequest:
    return add.AddRaftVoterRequest(
        cluster_id=sender.cluster_id,
        timeout_ms=sender.request_timeout_ms,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=listed(request.endpoints, add.Listener),
        ack_when_committed=request.is_acknowledged_when_committed,
    )


def read_add_request(
    message: add.AddRaftVoterRequest, receiver: Receiver
) -> rpc.AddVoterRequest | add.AddRaftVoterResponse:
    if not receiver.is_of(message.cluster_id):
        return add.AddRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=_other_cluster(message.cluster_id, receiver),
        )
    return rpc.AddVoterRequest(
        voter=VoterKey(BrokerId(message.voter_id), message.voter_directory_id),
        endpoints=endpoints_of(message.listeners),
        is_acknowledged_when_committed=message.ack_when_committed,
    )


def add_response(response: rpc.ChangeVotersResponse) -> add.AddRaftVoterResponse:
    return add.AddRaftVoterResponse(error_code=response.error, error_message=_message(response))


# RemoveRaftVoter


def remove_request(
    request: rpc.RemoveVoterRequest, sender: Sender
) -> remove.RemoveRaftVoterRequest:
    return remove.RemoveRaftVoterRequest(
        cluster_id=sender.cluster_id,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
    )


def read_remove_request(
    message: remove.RemoveRaftVoterRequest, receiver: Receiver
) -> rpc.RemoveVoterRequest | remove.RemoveRaftVoterResponse:
    if not receiver.is_of(message.cluster_id):
        return remove.RemoveRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=_other_cluster(message.cluster_id, receiver),
        )
    return rpc.RemoveVoterRequest(
        voter=VoterKey(BrokerId(message.voter_id), message.voter_directory_id)
    )


def remove_response(response: rpc.ChangeVotersResponse) -> remove.RemoveRaftVoterResponse:
    return remove.RemoveRaftVoterResponse(
        error_code=response.error, error_message=_message(response)
    )


def read_change_response(
    message: add.AddRaftVoterResponse | remove.RemoveRaftVoterResponse,
) -> rpc.ChangeVotersResponse:
    return rpc.ChangeVotersResponse(
        error=error_code(message.error_code),
        message=message.error_message,
        leadership=rpc.UNKNOWN_LEADERSHIP,
    )


def _other_cluster(cluster_id: str | None, receiver: Receiver) -> str:
    text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{receiver.cluster_id}"'
    return text[:_TEXT_CHARS_MAX]


def _message(response: rpc.ChangeVotersResponse) -> str | None:
    """Kafka sends an empty text for an error without one, and none without an error."""
    text = response.message or (None if response.error is ErrorCode.NONE else "")
    return None if text is None else text[:_TEXT_CHARS_MAX]


# UpdateRaftVoter


def update_request(
    request: rpc.UpdateVoterRequest, sender: Sender
) -> update.UpdateRaftVoterRequest:
    lowest, highest = request.kraft_versions
    return update.UpdateRaftVoterRequest(
        cluster_id=sender.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=listed(request.endpoints, update.Listener),
        kraft_version_feature=update.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


def read_update_request(
    message: update.UpdateRaftVoterRequest, receiver: Receiver
) -> rpc.UpdateVoterRequest | update.UpdateRaftVoterResponse:
    if not receiver.is_of(message.cluster_id):
        refusal = rpc.ChangeVotersResponse(
            error=ErrorCode.INCONSISTENT_CLUSTER_ID, leadership=receiver.leadership
        )
        return update_response(refusal, receiver.listener)
    feature = message.kraft_version_feature
    return rpc.UpdateVoterRequest(
        epoch=LeaderEpoch(message.current_leader_epoch),
        voter=VoterKey(BrokerId(message.voter_id), message.voter_directory_id),
        endpoints=endpoints_of(message.listeners),
        kraft_versions=(feature.min_supported_version, feature.max_supported_version),
    )


def update_response(
    response: rpc.ChangeVotersResponse, listener: str
) -> update.UpdateRaftVoterResponse:
    leadership = response.leadership
    leader = update.CurrentLeader(leader_id=leadership.leader_id, leader_epoch=leadership.epoch)
    address = address_at(leadership, listener)
    if address is not None:
        leader.host, leader.port = address.host, address.port
    return update.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


def read_update_response(
    message: update.UpdateRaftVoterResponse, listener: str
) -> rpc.ChangeVotersResponse:
    leader = message.current_leader
    leader_id = BrokerId(leader.leader_id) if leader.leader_id >= 0 else NO_LEADER
    endpoints: rpc.Endpoints = ()
    if leader_id != NO_LEADER:
        endpoints = endpoint_at(listener, leader.host, leader.port)
    return rpc.ChangeVotersResponse(
        error=error_code(message.error_code),
        leadership=rpc.Leadership(LeaderEpoch(leader.leader_epoch), leader_id, endpoints),
    )


# ApiVersions


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)


def read_versions_response(message: ApiVersionsResponse) -> rpc.ApiVersionsResponse:
    supported = None
    for feature in message.supported_features:
        if feature.name == KRAFT_VERSION:
            supported = (feature.min_version, feature.max_version)
            break
    return rpc.ApiVersionsResponse(error=error_code(message.error_code), kraft_versions=supported)
