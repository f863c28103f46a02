"""KRaft consensus as a state machine: events in, effects out. `roles` describes the roles,
`events` what happens to it and what it wants done, `rpc` what nodes ask each other.

| role | event | next |
|---|---|---|
| unattached | time passes without a leader | prospective |
| unattached, prospective, candidate | a response or a request names the leader | follower |
| prospective | a majority would vote for this node | candidate of the next epoch |
| prospective | a majority would not, or time passes | follower again, or unattached |
| candidate | a majority voted for this node | leader |
| candidate | time passes | prospective |
| follower | no fetch succeeded for too long | prospective |
| leader | no majority fetched for too long; a stop; its removal | resigned |
| resigned | time passes | unattached in the next epoch |
| any | a later epoch | unattached, or follower if its leader is known |

A single voter goes through prospective and candidate to leader in its first step.
"""

from typing import NamedTuple

from moldau.core.quorum.connections import Chance, Sent
from moldau.core.quorum.elections import Elections
from moldau.core.quorum.events import (
    Abandoned,
    Appended,
    Effect,
    Event,
    Flushed,
    NotDelivered,
    Requested,
    ResignRequested,
    Respond,
    Responded,
    SnapshotInstalled,
    SnapshotMade,
    Started,
    Stopping,
    TimePassed,
    Token,
    Truncated,
    UpgradeRequested,
    WriteRefused,
)
from moldau.core.quorum.following import Following
from moldau.core.quorum.leading import Leading, Resigning
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.peers import FOREVER_MS
from moldau.core.quorum.positions import LogView
from moldau.core.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    Failure,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Leadership,
    QuorumEpochResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from moldau.core.quorum.state import QuorumState
from moldau.core.quorum.voter_changes import VoterChanges
from moldau.core.quorum.voters import KRAFT_VERSION_MAX, Voter, VoterKey, VoterSet
from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError
from moldau.types import NO_LEADER, BrokerId, LeaderEpoch, Offset


class VotersError(MoldauError):
    """This node cannot take part in the quorum that its disk or its settings describe."""


class ReplicaStatus(NamedTuple):
    """A replica in the response of DescribeQuorum. A time of -1 means never."""

    key: VoterKey
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int


@frozen(kw_only=True)
class QuorumStatus:
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...] = ()
    endpoints: tuple[Voter, ...] = ()


class QuorumMachine:
    def __init__(
        self,
        local: Voter,
        static_voters: VoterSet,
        options: QuorumOptions,
        log: LogView,
        chance: Chance,
    ) -> None:
        """`static_voters` are those of the settings; `log` is read, `chance` spreads elections."""
        self._state = QuorumState(local, static_voters, options, log, chance)
        self._elections = Elections(self._state)
        self._leading = Leading(self._state)
        self._resigning = Resigning(self._state)
        self._following = Following(self._state, self._elections)
        self._voter_changes = VoterChanges(self._state, self._leading)
        self.wake_ms = FOREVER_MS
        """When the machine needs TimePassed, unless something else happens before."""

    # Queries

    @property
    def local(self) -> Voter:
        return self._state.local

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> LeaderEpoch:
        return self._state.epoch

    @property
    def leader_id(self) -> BrokerId:
        return self._state.leader_id

    @property
    def leadership(self) -> Leadership:
        """The leader with its addresses; without them, as long as they are unknown."""
        return self._state.leadership

    @property
    def is_leader(self) -> bool:
        return isinstance(self._state.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self._state.voters

    @property
    def kraft_version(self) -> int:
        return self._state.history.kraft_version

    @property
    def high_watermark(self) -> Offset:
        """NO_OFFSET for a leader until a record of its own epoch is committed."""
        return self._state.high_watermark

    def voters_at(self, offset: Offset) -> VoterSet | None:
        """The voters as the log has them after the record at `offset`."""
        return self._state.history.voters_at(offset)

    def kraft_version_at(self, offset: Offset) -> int:
        return self._state.history.kraft_version_at(offset)

    @property
    def may_stop(self) -> bool:
        """Whether the quorum needs nothing more of this node, which is stopping."""
        state = self._state
        has_successor = state.leader_id not in {NO_LEADER, state.local.key.node_id}
        return not state.is_voter or state.is_only_voter or has_successor

    def check_upgrade(self, level: int) -> None:
        """While leading. Raises KafkaError if kraft.version cannot be raised to `level`."""
        self._voter_changes.check_upgrade(level)

    def status(self, now_ms: float, wall_ms: int) -> QuorumStatus:
        """For DescribeQuorum. Only the leader knows how far the others are."""
        state, role = self._state, self._state.role
        voters: tuple[ReplicaStatus, ...] = ()
        observers: tuple[ReplicaStatus, ...] = ()
        if isinstance(role, Leader):
            state.now_ms = now_ms
            self._leading.forget_silent_observers()
            voters = tuple(self._replica(each, wall_ms) for each in role.voters.values())
            observers = tuple(self._replica(each, wall_ms) for each in role.observers.values())
        return QuorumStatus(
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            high_watermark=state.high_watermark,
            voters=voters,
            observers=observers,
            endpoints=tuple(state.voters.by_id.values()),
        )

    def _replica(self, progress: Progress, wall_ms: int) -> ReplicaStatus:
        """The leader itself counts as caught up at any time."""
        if self._state.local.key.is_same(progress.key) or progress.key.is_same(self.local.key):
            return ReplicaStatus(progress.key, self._state.log.end.offset, wall_ms, wall_ms)
        age_ms = wall_ms - self._state.now_ms
        times_ms = (progress.last_fetch_ms, progress.last_caught_up_ms)
        fetch_ms, caught_up_ms = (-1 if ms < 0 else round(ms + age_ms) for ms in times_ms)
        return ReplicaStatus(progress.key, progress.end_offset, fetch_ms, caught_up_ms)

    # Steps

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """`now_ms` never falls. Raises VotersError at the start only."""
        state = self._state
        state.now_ms = max(state.now_ms, now_ms)
        if state.now_ms >= self.wake_ms:
            # After a pause of the process, overdue timers come before queued requests.
            self._poll()
        if not state.has_failed:
            self._handle(event)
        if not state.has_failed:
            self._poll()
        return state.take_effects()

    def _handle(self, event: Event) -> None:
        match event:
            case Requested(token, request):
                self._answer(token, request)
            case Responded(correlation, response):
                self._receive(correlation, response)
            case NotDelivered(correlation, failure):
                self._fail(correlation, failure)
            case Abandoned() | UpgradeRequested() | ResignRequested():
                if isinstance(self._state.role, Leader):
                    self._handle_as_leader(self._state.role, event)
            case Started():
                self._start(event)
            case Stopping():
                self._state.is_stopping = True
            case TimePassed():
                pass
            case _:
                self._log_changed(event)

    def _handle_as_leader(
        self, leader: Leader, event: Abandoned | UpgradeRequested | ResignRequested
    ) -> None:
        match event:
            case Abandoned(token):
                leader.waiting.pop(token, None)
            case UpgradeRequested(level):
                self._voter_changes.upgrade(level)
            case ResignRequested(epoch):
                leader.is_resigning = leader.is_resigning or leader.epoch == epoch

    def _poll(self) -> None:
        """Runs the timers of the role, and those of the next role if it changes."""
        polled = None
        while polled is not self._state.role:
            polled = self._state.role
            self.wake_ms = self._poll_role(polled)

    def _poll_role(self, role: Role) -> float:
        match role:
            case Unattached():
                return self._following.poll_unattached()
            case Prospective() | Candidate():
                return self._elections.poll()
            case Follower():
                return self._following.poll()
            case Resigned():
                return self._resigning.poll()
            case Leader():
                change_ms = self._voter_changes.poll()
                return min(change_ms, self._leading.poll())

    # Starting

    def _start(self, event: Started) -> None:
        state = self._state
        state.history.add(event.changes)
        self._check_voters()
        state.restore(event.election)
        if state.is_only_voter:
            self._elections.stand()

    def _check_voters(self) -> None:
        state, key, voters = self._state, self._state.local.key, self._state.voters
        level = state.history.kraft_version
        if level > KRAFT_VERSION_MAX:
            raise VotersError(f"kraft.version {level} is not supported: {KRAFT_VERSION_MAX} is")
        if not voters.by_id and not state.options.bootstrap:
            raise VotersError(
                f"there are no voters: format node {key.node_id} with --standalone, "
                "or set controller.quorum.voters"
            )
        if len(voters.by_id) == 1 and key.node_id in voters.by_id and key not in voters:
            raise VotersError(
                f"the voter is node {voters}, and this is node {key}: "
                "the metadata directory was replaced or formatted again"
            )

    # The log

    def _log_changed(
        self,
        event: Appended | Flushed | Truncated | SnapshotInstalled | SnapshotMade | WriteRefused,
    ) -> None:
        state = self._state
        match event:
            case Appended(_, changes):
                state.history.add(changes)
                if isinstance(state.role, Leader):
                    self._voter_changes.appended()
                    self._leading.log_advanced()
                else:
                    self._following.write_finished()
                    self._following.raise_high_watermark()
            case Flushed():
                if isinstance(state.role, Leader):
                    self._leading.count()
                else:
                    self._following.write_finished()
            case Truncated(end_offset):
                state.history.truncate(end_offset)
                self._following.write_finished()
            case SnapshotInstalled(_, changes):
                state.history.restart(changes)
                self._following.snapshot_installed()
            case SnapshotMade(snapshot):
                state.history.forget_before(snapshot.offset)
            case WriteRefused(reason):
                self._write_refused(reason)

    def _write_refused(self, reason: str) -> None:
        state, role = self._state, self._state.role
        state.note(f"the metadata log refused a write: {reason}")
        if isinstance(role, Leader):
            # Without its first record an epoch commits nothing.
            role.is_resigning = role.is_resigning or state.log.end.offset <= role.start_offset
            self._voter_changes.refused(reason)
        elif isinstance(role, Follower):
            self._following.drop_snapshot()
            self._following.write_finished()
            role.fetch_resumes_ms = state.now_ms + state.options.refused_write_pause_ms

    # Requests

    def _answer(self, token: Token, request: Request) -> None:
        match request:
            case VoteRequest():
                self._elections.answer_vote(token, request)
            case BeginQuorumEpochRequest():
                self._elections.answer_begin_epoch(token, request)
            case EndQuorumEpochRequest():
                self._elections.answer_end_epoch(token, request)
            case FetchRequest():
                self._leading.answer_fetch(token, request)
            case FetchSnapshotRequest():
                self._leading.answer_fetch_snapshot(token, request)
            case AddVoterRequest():
                self._voter_changes.answer_add(token, request)
            case RemoveVoterRequest():
                self._voter_changes.answer_remove(token, request)
            case UpdateVoterRequest():
                self._voter_changes.answer_update(token, request)
            case ApiVersionsRequest():
                # Listeners answer it themselves.
                self._state.emit(Respond(token, ApiVersionsResponse()))

    def _receive(self, correlation: int, response: Response) -> None:
        sent = self._state.connections.expected(correlation)
        if sent is not None:
            is_success = self._read(sent, response)
            self._state.connections.finish(sent, self._state.now_ms, is_success=is_success)

    def _read(self, sent: Sent, response: Response) -> bool:
        """Returns whether the next request to the node may be sent without a pause."""
        match response:
            case VoteResponse():
                return self._elections.vote_received(sent.node_id, response)
            case QuorumEpochResponse():
                handled = self._elections.learn(response.error, response.leadership)
                if handled is not None:
                    return handled
                return self._resigning.acknowledged(sent.node_id, response)
            case FetchResponse():
                assert isinstance(sent.request, FetchRequest)
                return self._following.records_received(sent.request, response)
            case FetchSnapshotResponse():
                return self._following.snapshot_received(response)
            case ChangeVotersResponse():
                return self._following.update_received(sent.request, response)
            case ApiVersionsResponse():
                return self._voter_changes.versions_received(sent.correlation, response)

    def _fail(self, correlation: int, failure: Failure) -> None:
        sent = self._state.connections.expected(correlation)
        if sent is None:
            return
        self._state.connections.finish(sent, self._state.now_ms, is_success=False)
        match sent.request:
            case VoteRequest():
                self._elections.vote_failed(failure)
            case ApiVersionsRequest():
                self._voter_changes.no_versions(correlation)
            case UpdateVoterRequest() if failure is Failure.UNSUPPORTED:
                self._following.update_accepted()
            case FetchRequest() | FetchSnapshotRequest() | UpdateVoterRequest():
                self._following.fetch_failed(sent.node_id, failure)
            case _:
                pass
