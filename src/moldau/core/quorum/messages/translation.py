"""Both directions for every request of the quorum."""

from typing import assert_never

from moldau.core.quorum import rpc
from moldau.core.quorum.messages import elections, replication, voter_changes
from moldau.core.quorum.messages.parties import Receiver, Sender
from moldau.protocol import messages as m
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.schema import Message

API_OF: dict[type[rpc.Request], ApiKey] = {
    rpc.VoteRequest: ApiKey.VOTE,
    rpc.BeginQuorumEpochRequest: ApiKey.BEGIN_QUORUM_EPOCH,
    rpc.EndQuorumEpochRequest: ApiKey.END_QUORUM_EPOCH,
    rpc.FetchRequest: ApiKey.FETCH,
    rpc.FetchSnapshotRequest: ApiKey.FETCH_SNAPSHOT,
    rpc.AddVoterRequest: ApiKey.ADD_RAFT_VOTER,
    rpc.RemoveVoterRequest: ApiKey.REMOVE_RAFT_VOTER,
    rpc.UpdateVoterRequest: ApiKey.UPDATE_RAFT_VOTER,
    rpc.ApiVersionsRequest: ApiKey.API_VERSIONS,
}

# The sender's side


def request_message(request: rpc.Request, version: int, sender: Sender) -> Message:
    """Encoding it raises KafkaError(UNSUPPORTED_VERSION) if the version cannot express it."""
    match request:
        case rpc.VoteRequest():
            return elections.vote_request(request, sender)
        case rpc.BeginQuorumEpochRequest():
            return elections.begin_request(request, sender)
        case rpc.EndQuorumEpochRequest():
            return elections.end_request(request, sender)
        case rpc.FetchRequest():
            return replication.fetch_request(request, version, sender)
        case rpc.FetchSnapshotRequest():
            return replication.snapshot_request(request, sender)
        case rpc.AddVoterRequest():
            return voter_changes.add_request(request, sender)
        case rpc.RemoveVoterRequest():
            return voter_changes.remove_request(request, sender)
        case rpc.UpdateVoterRequest():
            return voter_changes.update_request(request, sender)
        case rpc.ApiVersionsRequest():
            return voter_changes.versions_request()
        case _:
            assert_never(request)


def read_response(message: Message, listener: str) -> rpc.Response:
    """`listener` is the controllers' listener, to which the request was sent. Raises KafkaError if
    the response is an error of the whole request, or is not about the metadata partition.
    """
    match message:
        case m.VoteResponse():
            return elections.read_vote_response(message, listener)
        case m.BeginQuorumEpochResponse() | m.EndQuorumEpochResponse():
            return elections.read_epoch_response(message, listener)
        case m.FetchResponse():
            return replication.read_fetch_response(message, listener)
        case m.FetchSnapshotResponse():
            return replication.read_snapshot_response(message, listener)
        case m.AddRaftVoterResponse() | m.RemoveRaftVoterResponse():
            return voter_changes.read_change_response(message)
        case m.UpdateRaftVoterResponse():
            return voter_changes.read_update_response(message, listener)
        case m.ApiVersionsResponse():
            return voter_changes.read_versions_response(message)
        case _:
            raise AssertionError(f"the quorum does not ask for {message!r}")


# The receiver's side


def read_request(message: Message, version: int, receiver: Receiver) -> rpc.Request | Message:
    """The request for the quorum machine, or the response that refuses it."""
    match message:
        case m.VoteRequest():
            return elections.read_vote_request(message, receiver)
        case m.BeginQuorumEpochRequest():
            return elections.read_begin_request(message, receiver)
        case m.EndQuorumEpochRequest():
            return elections.read_end_request(message, receiver)
        case m.FetchRequest():
            return replication.read_fetch_request(message, receiver)
        case m.FetchSnapshotRequest():
            return replication.read_snapshot_request(message, version, receiver)
        case m.AddRaftVoterRequest():
            return voter_changes.read_add_request(message, receiver)
        case m.RemoveRaftVoterRequest():
            return voter_changes.read_remove_request(message, receiver)
        case m.UpdateRaftVoterRequest():
            return voter_changes.read_update_request(message, receiver)
        case _:
            raise AssertionError(f"the quorum does not serve {message!r}")


def response_message(
    response: rpc.Response, request: Message, version: int, listener: str
) -> Message:
    """The message that answers `request`, which came to `listener`."""
    match response:
        case rpc.VoteResponse():
            return elections.vote_response(response, version, listener)
        case rpc.QuorumEpochResponse():
            if isinstance(request, m.BeginQuorumEpochRequest):
                return elections.begin_response(response, version, listener)
            return elections.end_response(response, version, listener)
        case rpc.FetchResponse():
            return replication.fetch_response(response, version, listener)
        case rpc.FetchSnapshotResponse():
            return replication.snapshot_response(response, version, listener)
        case rpc.ChangeVotersResponse():
            if isinstance(request, m.AddRaftVoterRequest):
                return voter_changes.add_response(response)
            if isinstance(request, m.RemoveRaftVoterRequest):
                return voter_changes.remove_response(response)
            return voter_changes.update_response(response, listener)
        case rpc.ApiVersionsResponse():
            raise AssertionError("listeners answer ApiVersions themselves")
        case _:
            assert_never(response)
