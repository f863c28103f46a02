"""The requests of the quorum and their responses, without versions: the shell translates them from
and to Kafka's messages. Each is named after Kafka's.
"""

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.types import INT64_MAX, NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset

Endpoints: TypeAlias = tuple[VoterEndpoint, ...]


class Destination(NamedTuple):
    """A node to send a request to. Bootstrap servers have no known id: theirs is negative."""

    node_id: int
    host: str
    port: int


@frozen
class Leadership:
    """The leader that a node knows of. Every response contains it."""

    epoch: LeaderEpoch
    leader_id: BrokerId = NO_LEADER
    endpoints: Endpoints = ()


UNKNOWN_LEADERSHIP = Leadership(LeaderEpoch(-1))
"""Of a node that has not started, and of responses that name neither epoch nor leader."""


# Requests


@frozen(kw_only=True)
class VoteRequest:
    epoch: LeaderEpoch
    """The epoch to lead; for a pre-vote the epoch that the sender is in."""
    candidate: VoterKey
    last: LogPosition
    """The end of the candidate's log."""
    is_pre_vote: bool = False
    voter: VoterKey | None = None
    """The receiver. Not in old versions."""


@frozen(kw_only=True)
class BeginQuorumEpochRequest:
    epoch: LeaderEpoch
    leader_id: BrokerId
    endpoints: Endpoints = ()
    voter: VoterKey | None = None


@frozen(kw_only=True)
class EndQuorumEpochRequest:
    epoch: LeaderEpoch
    leader_id: BrokerId
    endpoints: Endpoints = ()
    successors: tuple[VoterKey, ...] = ()
    """The best candidate first."""


@frozen(kw_only=True)
class FetchRequest:
    replica: VoterKey
    epoch: LeaderEpoch
    position: LogPosition
    """The end of the follower's log, which acknowledges everything before it."""
    high_watermark: int = INT64_MAX
    """The one that the follower knows. Not in old versions."""
    max_bytes: int
    max_wait_ms: int


@frozen(kw_only=True)
class FetchSnapshotRequest:
    replica: VoterKey
    epoch: LeaderEpoch
    snapshot: LogPosition
    position: int
    max_bytes: int


@frozen(kw_only=True)
class AddVoterRequest:
    voter: VoterKey
    endpoints: Endpoints
    is_acknowledged_when_committed: bool = True


@frozen(kw_only=True)
class RemoveVoterRequest:
    voter: VoterKey


@frozen(kw_only=True)
class UpdateVoterRequest:
    epoch: LeaderEpoch
    voter: VoterKey
    endpoints: Endpoints
    kraft_versions: tuple[int, int]


@frozen
class ApiVersionsRequest:
    """Asks a node that is to become a voter which kraft.version it supports."""


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)

# Responses


@frozen(kw_only=True)
class VoteResponse:
    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership
    is_granted: bool = False


@frozen(kw_only=True)
class QuorumEpochResponse:
    """To BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership


@frozen(kw_only=True)
class FetchResponse:
    """Fields that do not apply are empty. On the leader, the shell adds the records."""

    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: LogPosition | None = None
    snapshot: LogPosition | None = None
    records: bytes = b""


@frozen(kw_only=True)
class FetchSnapshotResponse:
    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership
    snapshot: LogPosition | None = None
    size: int = 0
    position: int = 0
    content: bytes = b""


@frozen(kw_only=True)
class ChangeVotersResponse:
    """To AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leadership: Leadership


@frozen(kw_only=True)
class ApiVersionsResponse:
    error: ErrorCode = ErrorCode.NONE
    kraft_versions: tuple[int, int] | None = None
    """None if the node does not know the feature."""


Response: TypeAlias = (
    VoteResponse
    | QuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ChangeVotersResponse
    | ApiVersionsResponse
)


class Failure(Enum):
    """Why no response came."""

    UNSUPPORTED = auto()
    """The node does not know the request, or not in this form."""
    REFUSED = auto()
    """Nothing listens at the address: the process has ended."""
    LOST = auto()
    """The connection broke, could not be made for another reason, or brought an answer that is not
    about the request.
    """
