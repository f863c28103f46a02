"""The quorum's requests and responses as Kafka's messages: what is sent is what is read, in every
version that can express it, and what is not about this cluster is refused as Kafka refuses it.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import Receiver, Sender
from moldau.core.quorum.messages.translation import (
    API_OF,
    read_request,
    read_response,
    request_message,
    response_message,
)
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.protocol import messages as m
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import (
    fetch,
    request_class,
    response_class,
)
from moldau.protocol.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from moldau.protocol.wire.codec import decode, encode
from moldau.protocol.wire.schema import Message
from moldau.types import (
    NO_LEADER,
    NO_OFFSET,
    ZERO_UUID,
    BrokerId,
    LeaderEpoch,
    Offset,
    Uuid,
)

CLUSTER = "Y2x1c3RlciBvZiB0ZXN0cw"
LISTENER = "CONTROLLER"
SENDER = Sender(CLUSTER, 2_000)
LEADERSHIP = rpc.Leadership(LeaderEpoch(7), BrokerId(2), (VoterEndpoint(LISTENER, "host-2", 9093),))
RECEIVER = Receiver(CLUSTER, LISTENER, LEADERSHIP)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
epochs = counts.map(LeaderEpoch)
offsets = st.integers(0, 2**63 - 1).map(Offset)
node_ids = counts.map(BrokerId)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
hosts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
ports = st.integers(0, 65_535)
replicas = st.builds(VoterKey, int32s.map(BrokerId), uuids)
voters = st.builds(VoterKey, node_ids, uuids)
positions = st.builds(LogPosition, epochs, offsets)
any_positions = st.builds(LogPosition, int32s.map(LeaderEpoch), int64s.map(Offset))
errors = st.sampled_from(ErrorCode)
endpoints = st.lists(
    st.builds(VoterEndpoint, st.sampled_from(["CONTROLLER", "SSL", "B"]), hosts, ports),
    max_size=3,
    unique_by=lambda each: each.listener,
).map(tuple)
leaderships = st.builds(
    rpc.Leadership,
    int32s.map(LeaderEpoch),
    node_ids,
    st.builds(VoterEndpoint, st.just(LISTENER), hosts, ports).map(lambda each: (each,)),
) | st.builds(rpc.Leadership, int32s.map(LeaderEpoch))

REQUESTS: dict[ApiKey, st.SearchStrategy[Any]] = {
    ApiKey.VOTE: st.builds(
        rpc.VoteRequest,
        epoch=int32s.map(LeaderEpoch),
        candidate=replicas,
        last=any_positions,
        is_pre_vote=st.booleans(),
        voter=st.none() | voters,
    ),
    ApiKey.BEGIN_QUORUM_EPOCH: st.builds(
        rpc.BeginQuorumEpochRequest,
        epoch=int32s.map(LeaderEpoch),
        leader_id=int32s.map(BrokerId),
        endpoints=endpoints,
        voter=st.none() | voters,
    ),
    ApiKey.END_QUORUM_EPOCH: st.builds(
        rpc.EndQuorumEpochRequest,
        epoch=int32s.map(LeaderEpoch),
        leader_id=int32s.map(BrokerId),
        endpoints=endpoints,
        successors=st.lists(replicas, max_size=3).map(tuple),
    ),
    ApiKey.FETCH: st.builds(
        rpc.FetchRequest,
        replica=replicas,
        epoch=int32s.map(LeaderEpoch),
        position=any_positions,
        high_watermark=int64s,
        max_bytes=int32s,
        max_wait_ms=int32s,
    ),
    ApiKey.FETCH_SNAPSHOT: st.builds(
        rpc.FetchSnapshotRequest,
        replica=replicas,
        epoch=int32s.map(LeaderEpoch),
        snapshot=any_positions,
        position=int64s,
        max_bytes=int32s,
    ),
    ApiKey.ADD_RAFT_VOTER: st.builds(
        rpc.AddVoterRequest,
        voter=replicas,
        endpoints=endpoints,
        is_acknowledged_when_committed=st.booleans(),
    ),
    ApiKey.REMOVE_RAFT_VOTER: st.builds(rpc.RemoveVoterRequest, voter=replicas),
    ApiKey.UPDATE_RAFT_VOTER: st.builds(
        rpc.UpdateVoterRequest,
        epoch=int32s.map(LeaderEpoch),
        voter=replicas,
        endpoints=endpoints,
        kraft_versions=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    ),
}

epoch_responses = st.builds(rpc.QuorumEpochResponse, error=errors, leadership=leaderships)
changes = st.builds(
    rpc.ChangeVotersResponse,
    error=errors,
    message=st.none() | texts,
    leadership=leaderships,
)
RESPONSES: dict[ApiKey, st.SearchStrategy[Any]] = {
    ApiKey.VOTE: st.builds(
        rpc.VoteResponse, error=errors, leadership=leaderships, is_granted=st.booleans()
    ),
    ApiKey.BEGIN_QUORUM_EPOCH: epoch_responses,
    ApiKey.END_QUORUM_EPOCH: epoch_responses,
    ApiKey.FETCH: st.builds(
        rpc.FetchResponse,
        error=errors,
        leadership=leaderships,
        high_watermark=int64s.map(Offset),
        log_start_offset=int64s.map(Offset),
        diverging=st.none() | positions,
        snapshot=st.none() | positions,
        records=st.binary(max_size=12),
    ),
    ApiKey.FETCH_SNAPSHOT: st.builds(
        rpc.FetchSnapshotResponse,
        error=errors,
        leadership=leaderships,
        snapshot=positions,
        size=int64s,
        position=int64s,
        content=st.binary(max_size=12),
    ),
    ApiKey.ADD_RAFT_VOTER: changes,
    ApiKey.REMOVE_RAFT_VOTER: changes,
    ApiKey.UPDATE_RAFT_VOTER: changes,
}


def versions_of(api_key: ApiKey) -> range:
    """The versions that a controller of 4.3 serves."""
    served = API_VERSIONS[api_key].controller
    assert served is not None
    return range(served[0], served[1] + 1)


def every_version() -> list[tuple[ApiKey, int]]:
    return [(api_key, version) for api_key in REQUESTS for version in versions_of(api_key)]


def received(message: Message, version: int) -> Message:
    """After a journey over the network."""
    return decode(type(message), version, encode(message, version))


def as_sent(request: Any, version: int) -> Any:
    """The fields of a request that a version has: old ones have fewer."""
    match request:
        case rpc.VoteRequest() if version == 0:
            candidate = request.candidate._replace(directory_id=ZERO_UUID)
            return replace(request, candidate=candidate, voter=None)
        case rpc.BeginQuorumEpochRequest() if version == 0:
            return replace(request, endpoints=(), voter=None)
        case rpc.EndQuorumEpochRequest() if version == 0:
            successors = tuple(VoterKey(key.node_id) for key in request.successors)
            return replace(request, endpoints=(), successors=successors)
        case rpc.FetchRequest():
            if version < 17:
                request = replace(request, replica=VoterKey(request.replica.node_id))
            if version < 18:
                request = replace(request, high_watermark=2**63 - 1)
            return request
        case rpc.FetchSnapshotRequest() if version == 0:
            return replace(request, replica=VoterKey(request.replica.node_id))
        case _:
            return request


def is_expressible(request: Any, version: int) -> bool:
    match request:
        case rpc.VoteRequest(is_pre_vote=True):
            return version >= 2
        case rpc.AddVoterRequest(is_acknowledged_when_committed=False):
            return version >= 1
        case rpc.FetchRequest():
            return version >= 12 or request.position.epoch == -1
        case _:
            return True


@pytest.mark.parametrize(("api_key", "version"), every_version())
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_asked_is_what_is_read(api_key: ApiKey, version: int, data: Any) -> None:
    request = data.draw(REQUESTS[api_key])
    message = request_message(request, version, SENDER)
    assert message.API_KEY == API_OF[type(request)] == api_key
    if not is_expressible(request, version):
        with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
            encode(message, version)
        return
    read = read_request(received(message, version), version, RECEIVER)
    if api_key is ApiKey.FETCH and version < 13:
        # These versions name topics, and Kafka compares the ids.
        assert isinstance(read, fetch.FetchResponse)
        assert read.error_code == ErrorCode.INVALID_REQUEST
    else:
        assert read == as_sent(request, version)


def without_endpoints(leadership: rpc.Leadership) -> rpc.Leadership:
    return replace(leadership, endpoints=())


ENDPOINTS_SINCE_VERSION = {ApiKey.FETCH: 17, ApiKey.UPDATE_RAFT_VOTER: 0}


def as_answered(response: Any, api_key: ApiKey, version: int) -> Any:
    match response:
        case rpc.ChangeVotersResponse() if api_key is not ApiKey.UPDATE_RAFT_VOTER:
            shown = response.message or ("" if response.error else None)
            return replace(response, message=shown, leadership=rpc.Leadership(LeaderEpoch(-1)))
        case rpc.ChangeVotersResponse():
            return replace(response, message=None)
        case rpc.FetchResponse() if version < 12:
            unknown = rpc.Leadership(LeaderEpoch(-1))
            return replace(response, leadership=unknown, diverging=None, snapshot=None)
    if version < ENDPOINTS_SINCE_VERSION.get(api_key, 1):
        return replace(response, leadership=without_endpoints(response.leadership))
    return response


@pytest.mark.parametrize(("api_key", "version"), every_version())
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_answered_is_what_is_read(api_key: ApiKey, version: int, data: Any) -> None:
    response = data.draw(RESPONSES[api_key])
    message = response_message(response, request_class(api_key)(), version, LISTENER)
    assert type(message) is response_class(api_key)
    if api_key is ApiKey.FETCH and version < 13:
        with pytest.raises(KafkaError):
            read_response(received_old_fetch(message, version), LISTENER)
        return
    assert read_response(received(message, version), LISTENER) == as_answered(
        response, api_key, version
    )


def received_old_fetch(message: Message, version: int) -> Message:
    """Before topic ids, and before what only followers of the quorum need."""
    assert isinstance(message, fetch.FetchResponse)
    if version < 12:
        partition = message.responses[0].partitions[0]
        partition.diverging_epoch = fetch.EpochEndOffset()
        partition.snapshot_id = fetch.SnapshotId()
        partition.current_leader = fetch.LeaderIdAndEpoch()
    return received(message, version)


def test_records_are_sent_without_a_copy() -> None:
    records = memoryview(bytearray(b"records"))
    response = rpc.FetchResponse(leadership=LEADERSHIP, records=records)  # type: ignore[arg-type]
    message: Any = response_message(response, m.FetchRequest(), 18, LISTENER)
    assert message.responses[0].partitions[0].records is records


def test_a_new_voter_says_which_levels_it_supports() -> None:
    for features, expected in (({"kraft.version": (0, 1)}, (0, 1)), ({"other": (0, 9)}, None)):
        message = ApiVersionsResponse(
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in features.items()
            ]
        )
        read = read_response(received(message, 4), LISTENER)
        assert isinstance(read, rpc.ApiVersionsResponse)
        assert read.kraft_versions == expected
    refused = read_response(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), LISTENER)
    assert isinstance(refused, rpc.ApiVersionsResponse)
    assert refused.error is ErrorCode.UNSUPPORTED_VERSION


def test_a_fetch_has_no_leader_before_one_is_known() -> None:
    refused = rpc.FetchResponse(
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leadership=rpc.Leadership(LeaderEpoch(3))
    )
    message: Any = response_message(refused, m.FetchRequest(), 18, LISTENER)
    (data,) = message.responses[0].partitions
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (NO_LEADER, 3)
    assert (data.high_watermark, data.records) == (NO_OFFSET, b"")
