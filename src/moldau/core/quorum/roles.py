"""The roles of a node, each with the state that is valid only in that role. Leaving a role drops
its knowledge; everything else is in `QuorumState`.

| role | what it is |
|---|---|
| unattached | knows no leader it could fetch from; may have voted in its epoch |
| prospective | asks whether it would be elected, before it begins an epoch (KIP-996) |
| candidate | voted for itself in a new epoch and asks for votes |
| leader | appends records, and counts who has them |
| follower | fetches from the leader; as an observer if it is not a voter |
| resigned | led its epoch and leads it no more; tells the voters so |
"""

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from moldau.core.quorum.events import Token
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import Endpoints, FetchRequest
from moldau.core.quorum.voters import VoterKey, VoterSet
from moldau.core.quorum.votes import Votes
from moldau.types import NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset

NEVER_MS = float("-inf")
"""The time of something that has not happened."""


@dataclass(slots=True, kw_only=True)
class Unattached:
    name: ClassVar = "unattached"
    epoch: LeaderEpoch
    leader_id: BrokerId = NO_LEADER
    """Known from the disk, without an address."""
    voted_for: VoterKey | None = None
    election_due_ms: float
    """Never for observers."""


@dataclass(slots=True, kw_only=True)
class SnapshotTransfer:
    snapshot: LogPosition
    position: int = 0


@dataclass(slots=True, kw_only=True)
class Prospective:
    name: ClassVar = "prospective"
    epoch: LeaderEpoch
    leader_id: BrokerId
    """The leader that it cannot reach. It follows it again if the other voters can."""
    endpoints: Endpoints
    voted_for: VoterKey | None
    votes: Votes
    election_due_ms: float
    transfer: SnapshotTransfer | None = None
    """Of that leader. It continues if this node follows it again."""
    is_leader_gone: bool = False
    """As a follower knows it: voters that still refuse will soon know it, too."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    name: ClassVar = "candidate"
    epoch: LeaderEpoch
    votes: Votes
    election_due_ms: float


@dataclass(slots=True)
class Progress:
    """How far a replica has the log, as its fetches say."""

    key: VoterKey
    end_offset: Offset = NO_OFFSET
    """NO_OFFSET until it fetches."""
    last_fetch_ms: float = NEVER_MS
    last_caught_up_ms: float = NEVER_MS
    leader_end_at_last_fetch: Offset = NO_OFFSET

    def fetched(self, offset: Offset, leader_end: Offset, now_ms: float) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = now_ms
        self.end_offset = offset


@dataclass(slots=True, kw_only=True)
class WaitingFetch:
    """A fetch for which the leader has nothing new yet."""

    request: FetchRequest
    due_ms: float


@dataclass(slots=True, kw_only=True)
class VoterChange:
    """A voter is being added or removed. There is never more than one."""

    token: Token | None
    """The request to answer; None once it was answered."""
    due_ms: float
    added: VoterKey | None = None
    endpoints: Endpoints = ()
    is_acknowledged_when_committed: bool = True
    correlation: int | None = None
    """Of the request to the new voter, until it answers."""
    offset: Offset = NO_OFFSET
    """Of the record of the voters, once it is in the log."""


@dataclass(slots=True, kw_only=True)
class Leader:
    name: ClassVar = "leader"
    epoch: LeaderEpoch
    start_offset: Offset
    """Where the epoch begins in the log."""
    voters: dict[int, Progress]
    static_voters: VoterSet | None
    """At kraft.version 0 the voters as they describe themselves, kept for the upgrade."""
    check_quorum_due_ms: float
    begin_epoch_due_ms: float
    high_watermark: Offset = NO_OFFSET
    """NO_OFFSET until a record of this epoch is committed."""
    observers: dict[VoterKey, Progress] = field(default_factory=dict)
    fetched: dict[int, None] = field(default_factory=dict)
    """The voters that fetched since a majority did."""
    waiting: dict[Token, WaitingFetch] = field(default_factory=dict)
    change: VoterChange | None = None
    is_resigning: bool = False


@dataclass(slots=True, kw_only=True)
class Follower:
    name: ClassVar = "follower"
    epoch: LeaderEpoch
    leader_id: BrokerId
    endpoints: Endpoints
    voted_for: VoterKey | None
    fetch_due_ms: float
    """When the leader counts as lost."""
    voter_update_due_ms: float
    """When to compare this node's entry among the voters with its configuration."""
    fetch_resumes_ms: float = 0.0
    """No fetch is sent before, to any node: the log refused what the last one brought."""
    has_fetched: bool = False
    """Then it does not help to replace the leader."""
    is_leader_gone: bool = False
    """It has resigned, or its process has ended: `fetch_due_ms` is this node's turn to stand."""
    has_leader_resigned: bool = False
    """It said so, and never leads in this epoch again."""
    has_updated_leader: bool = False
    leader_high_watermark: Offset = NO_OFFSET
    is_writing: bool = False
    """The log is being changed: where it ends is known afterwards."""
    transfer: SnapshotTransfer | None = None


@dataclass(slots=True, kw_only=True)
class Resigned:
    name: ClassVar = "resigned"
    epoch: LeaderEpoch
    unacknowledged: list[VoterKey]
    """Voters that do not know about the resignation yet."""
    successors: tuple[VoterKey, ...]
    election_due_ms: float


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
