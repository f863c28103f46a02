"""The quorum's requests to two controllers, Apache's and ours, which must answer alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from interop.live_broker import CLUSTER_ID
from interop.node_pair import HUNG_UP, Asker, plain

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import Sender
from moldau.core.quorum.messages.translation import read_response, request_message
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.wire.schema import Message, Struct
from moldau.types import (
    METADATA_PARTITION,
    BrokerId,
    LeaderEpoch,
    Offset,
    Uuid,
)

LISTENER = "CONTROLLER"
SENDER = Sender(CLUSTER_ID, 2_000)
OTHER = Uuid(b"o" * 16)
# Older ones cannot name the topic by its id.
FETCH_VERSIONS = range(13, 19)


# Snapshots are made soon.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "metadata.max.idle.interval.ms": "500",
}
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
FENCED, UNKNOWN_EPOCH = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


class Quorum(NamedTuple):
    """Everything that requests to one of the nodes depend on."""

    epoch: int
    directory_id: Uuid
    high_watermark: int = 0
    end_offset: int = 0


Request = Callable[[Quorum], rpc.Request]


def quorum_of(side: Asker) -> Quorum:
    """Of a node that leads."""
    found = described(side)
    assert found is not None
    (voter,) = found.current_voters
    return Quorum(
        found.leader_epoch,
        voter.replica_directory_id,
        found.high_watermark,
        voter.log_end_offset,
    )


def described(side: Asker) -> Any | None:
    """None while the node does not lead."""
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(
        topic_name=METADATA_PARTITION.topic, partitions=[partition]
    )
    answer = side.ask(DescribeQuorumRequest(topics=[topic]), 2)
    if answer == HUNG_UP or answer.error_code or not answer.topics:
        return None
    (found,) = answer.topics[0].partitions
    return None if found.error_code else found


def versions_of(request: Message) -> range:
    served = API_VERSIONS[ApiKey(request.API_KEY)].controller
    assert served is not None
    return range(served[0], served[1] + 1)


def comparable(value: Any, epoch: int) -> Any:
    """As `plain`, with epochs relative to that of the node."""
    shown = plain(value)

    def relative(each: Any) -> Any:
        if isinstance(each, list):
            return [relative(item) for item in each]
        if not isinstance(each, dict):
            return each
        return {
            name: inner - epoch if name == "leader_epoch" and inner > 0 else relative(inner)
            for name, inner in each.items()
        }

    return relative(shown)


def same(pair: Any, make: Callable[[Quorum, int], Message], *versions: int) -> Any:
    """The last response of ours, after both have answered alike."""
    quorums = [quorum_of(side) for side in pair]
    probe = make(quorums[0], 0)
    ours = None
    for version in versions or versions_of(probe):
        answers = []
        for side, quorum in zip(pair, quorums, strict=True):
            ours = side.ask(make(quorum, version), version)
            answers.append(comparable(ours, quorum.epoch))
        assert answers[1] == answers[0], f"version {version}: {answers}"
    return ours


def sent(request: Request) -> Callable[[Quorum, int], Message]:
    return lambda quorum, version: request_message(request(quorum), version, SENDER)


def key(node_id: int, directory_id: Uuid = OTHER) -> VoterKey:
    return VoterKey(BrokerId(node_id), directory_id)


def position(epoch: int, offset: int) -> LogPosition:
    return LogPosition(LeaderEpoch(epoch), Offset(offset))


def epoch_of(quorum: Quorum, more: int = 0) -> LeaderEpoch:
    return LeaderEpoch(quorum.epoch + more)


def vote_of(**changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.VoteRequest(
            epoch=epoch_of(quorum),
            candidate=key(2),
            last=position(0, 0),
            voter=key(1, quorum.directory_id),
        )
        return replace(request, **changes)

    return make


def begin_of(**changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.BeginQuorumEpochRequest(
            epoch=epoch_of(quorum), leader_id=BrokerId(1), voter=key(1, quorum.directory_id)
        )
        return replace(request, **changes)

    return make


def end_of(**changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.EndQuorumEpochRequest(epoch=epoch_of(quorum), leader_id=BrokerId(1))
        return replace(request, **changes)

    return make


def fetch_of(*, more: int = 0, **changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.FetchRequest(
            replica=key(2),
            epoch=epoch_of(quorum, more),
            position=position(0, 0),
            max_bytes=1_000_000,
            max_wait_ms=0,
        )
        return replace(request, **changes)

    return make


def snapshot_of(*, more: int = 0, **changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.FetchSnapshotRequest(
            replica=key(2),
            epoch=epoch_of(quorum, more),
            snapshot=position(0, 0),
            position=0,
            max_bytes=100_000,
        )
        return replace(request, **changes)

    return make


def update_of(*, more: int = 0, **changes: Any) -> Request:
    def make(quorum: Quorum) -> rpc.Request:
        request = rpc.UpdateVoterRequest(
            epoch=epoch_of(quorum, more),
            voter=key(2),
            endpoints=(VoterEndpoint(LISTENER, "localhost", 1),),
            kraft_versions=(0, 1),
        )
        return replace(request, **changes)

    return make


def add_of(**changes: Any) -> Request:
    endpoint = VoterEndpoint(LISTENER, "localhost", 1)
    request = rpc.AddVoterRequest(voter=key(3), endpoints=(endpoint,))
    return lambda _: replace(request, **changes)


def remove_of(**changes: Any) -> Request:
    return lambda _: replace(rpc.RemoveVoterRequest(voter=key(3)), **changes)


def codes(value: Any) -> list[int]:
    """All error codes of a message."""
    found: list[int] = []
    if isinstance(value, list):
        for each in value:
            found += codes(each)
    elif isinstance(value, Struct):
        for row in value.FIELDS:
            inner = getattr(value, row[0])
            found += [inner] if row[0] == "error_code" else codes(inner)
    return found


def answered(side: Asker, request: rpc.Request, version: int | None = None) -> rpc.Response:
    """As our own quorum reads it."""
    newest = versions_of(request_message(request, 0, SENDER))[-1]
    version = newest if version is None else version
    return read_response(side.ask(request_message(request, version, SENDER), version), LISTENER)
