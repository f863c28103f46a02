"""The state that all parts of the quorum machine share: the role, the voters, the log, and the
changes from one role to another.
"""

from moldau.core.quorum.connections import Chance
from moldau.core.quorum.election import Election
from moldau.core.quorum.events import (
    DropSnapshot,
    Effect,
    Fail,
    LeaderChanged,
    Noted,
    Respond,
    StoreElection,
    Token,
)
from moldau.core.quorum.history import QuorumHistory
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.peers import FOREVER_MS, QuorumPeers
from moldau.core.quorum.positions import LogView
from moldau.core.quorum.roles import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    Role,
    SnapshotTransfer,
    Unattached,
)
from moldau.core.quorum.rpc import (
    ChangeVotersResponse,
    Destination,
    Endpoints,
    FetchResponse,
    Leadership,
    Request,
)
from moldau.core.quorum.voters import RECONFIGURABLE_FROM, Voter, VoterKey, VoterSet
from moldau.core.quorum.votes import Votes
from moldau.protocol.error_codes import ErrorCode
from moldau.types import FIRST_EPOCH, NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset


class QuorumState:
    def __init__(
        self,
        local: Voter,
        static_voters: VoterSet,
        options: QuorumOptions,
        log: LogView,
        chance: Chance,
    ) -> None:
        self.local = local
        self.options = options
        self.log = log
        self.history = QuorumHistory(static_voters)
        self.peers = QuorumPeers(options, self.history, chance)
        self.connections = self.peers.connections
        self.role: Role = Unattached(epoch=FIRST_EPOCH, election_due_ms=FOREVER_MS)
        self.now_ms = 0.0
        self.known_high_watermark: Offset = NO_OFFSET
        """The highest offset that this node knows to be committed. It never falls."""
        self.is_stopping = False
        self.has_failed = False
        """The machine ignores all further events."""
        self._chance = chance
        self._effects: list[Effect] = []
        self._stored = Election(epoch=FIRST_EPOCH)
        self._announced = LeaderChanged(LeaderEpoch(0), NO_LEADER)

    # Queries

    @property
    def epoch(self) -> LeaderEpoch:
        return self.role.epoch

    @property
    def leader_id(self) -> BrokerId:
        match self.role:
            case Leader():
                return self.local.key.node_id
            case Follower() | Prospective() | Unattached():
                return self.role.leader_id
            case Candidate() | Resigned():
                return NO_LEADER

    @property
    def leadership(self) -> Leadership:
        match self.role:
            case Leader():
                endpoints = self.local.endpoints
            case Follower() | Prospective():
                endpoints = self.role.endpoints
            case _:
                endpoints = ()
        return Leadership(self.epoch, self.leader_id, endpoints)

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_reconfigurable(self) -> bool:
        return self.history.kraft_version >= RECONFIGURABLE_FROM

    @property
    def is_voter(self) -> bool:
        return self.local.key in self.voters

    @property
    def may_lead(self) -> bool:
        """Also a node that its own log removed from the voters, while it does not know that this is
        committed: it may be the only one that has the record, and so must get it to the others.
        """
        if self.is_voter:
            return True
        is_committed = self.history.voters_offset < self.known_high_watermark
        return not is_committed and self.local.key in self.history.voters_before

    @property
    def is_only_voter(self) -> bool:
        return self.voters.is_only(self.local.key)

    @property
    def counts_acknowledgements(self) -> bool:
        """Whether a leader may count this node's fetches, now or once it is a voter."""
        return self.is_voter or self.options.may_become_voter

    @property
    def high_watermark(self) -> Offset:
        """The value to report. A leader reports only what it computed in its own epoch."""
        if isinstance(self.role, Leader):
            return self.role.high_watermark
        return self.known_high_watermark

    # Effects

    def send(self, destination: Destination, request: Request) -> int:
        """Returns the correlation id of the response."""
        send = self.peers.request(destination, request, self.now_ms)
        self.emit(send)
        return send.correlation

    def ask(self, key: VoterKey, request: Request) -> float:
        """Sends the voter a request, unless one is under way; returns when the next may be sent."""
        send, due_ms = self.peers.ask(key, request, self.now_ms)
        if send is not None:
            self.emit(send)
        return due_ms

    def emit(self, *effects: Effect) -> None:
        self._effects.extend(effects)

    def fail(self, reason: str) -> None:
        self.has_failed = True
        self.emit(Fail(reason))

    def note(self, text: str) -> None:
        self.emit(Noted(text))

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # Changes of the role

    def restore(self, election: Election | None) -> None:
        """Sets the role at the start, from the stored election."""
        if election is not None:
            self._stored = election
        stored, last_epoch = self._stored, self.log.end.epoch
        epoch, voted_for, leader_id = stored.epoch, stored.voted_for, stored.leader_id
        endpoints = self.peers.endpoints_of(leader_id)
        if epoch < last_epoch:
            self._enter(Unattached(epoch=last_epoch, election_due_ms=self._first_election_ms()))
        elif leader_id == self.local.key.node_id:
            self._enter(self._resigned(epoch, ()))
        elif self.peers.address_of(leader_id, endpoints) is not None:
            self._enter(self._follower(epoch, leader_id, endpoints, voted_for))
        else:
            # Also a candidate: voters repeat a vote without comparing the logs again, and this one
            # may have lost what it had not flushed. Its next election has an epoch of its own.
            self._enter(
                Unattached(
                    epoch=epoch,
                    leader_id=leader_id,
                    voted_for=voted_for,
                    election_due_ms=self._first_election_ms(),
                )
            )

    def become_unattached(self, epoch: LeaderEpoch, leader_id: BrokerId = NO_LEADER) -> None:
        """The remaining time to the next election stays, or others could delay it for ever."""
        role, due_ms = self.role, FOREVER_MS
        if isinstance(role, Candidate | Unattached | Prospective | Resigned):
            due_ms = role.election_due_ms
        if isinstance(role, Prospective) and role.votes.is_lost:
            due_ms = FOREVER_MS
        if not self.may_lead:
            due_ms = FOREVER_MS
        elif due_ms == FOREVER_MS:
            due_ms = self._next_election_ms()
        unattached = Unattached(
            epoch=epoch,
            leader_id=leader_id,
            voted_for=self._vote_in(epoch),
            election_due_ms=due_ms,
        )
        self._enter(unattached, is_stored=True)

    def vote_for(self, candidate: VoterKey) -> None:
        """The vote holds for this epoch, also after a restart."""
        assert isinstance(self.role, Unattached | Prospective)
        self.role.voted_for = candidate
        self.role.election_due_ms = self._next_election_ms()
        self._store()

    def become_prospective(self) -> None:
        leadership, role = self.leadership, self.role
        self._enter(
            Prospective(
                epoch=self.epoch,
                leader_id=leadership.leader_id,
                endpoints=leadership.endpoints,
                voted_for=self._vote_in(self.epoch),
                votes=Votes(self.voters, self.local.key.node_id),
                election_due_ms=self._next_election_ms(),
                transfer=_transfer_of(self.role),
                is_leader_gone=isinstance(role, Follower) and role.is_leader_gone,
            )
        )

    def become_candidate(self) -> None:
        self._enter(self._candidate(LeaderEpoch(self.epoch + 1)), is_stored=True)

    def become_leader(self) -> Leader:
        options, voters = self.options, self.voters
        leader = Leader(
            epoch=self.epoch,
            start_offset=self.log.end.offset,
            voters={node_id: Progress(voter.key) for node_id, voter in voters.by_id.items()},
            static_voters=None if self.is_reconfigurable else voters.updated(self.local),
            check_quorum_due_ms=self.now_ms + options.check_quorum_ms,
            begin_epoch_due_ms=NEVER_MS,
        )
        self._enter(leader, is_stored=True)
        return leader

    def become_follower(
        self, epoch: LeaderEpoch, leader_id: BrokerId, endpoints: Endpoints
    ) -> None:
        follower = self._follower(epoch, leader_id, endpoints, self._vote_in(epoch))
        if (epoch, leader_id) == (self.epoch, self.leader_id):
            # The same process: it still has the same file.
            follower.transfer = _transfer_of(self.role)
        self._enter(follower, is_stored=True)

    def resign(self, successors: tuple[VoterKey, ...]) -> None:
        """The stored election stays: this node led the epoch, and will not vote in it."""
        self._enter(self._resigned(self.epoch, successors))

    def _enter(self, role: Role, *, is_stored: bool = False) -> None:
        left, self.role = self.role, role
        if is_stored:
            self._store()
        self.connections.forget_all()
        self.note(f"{role.name} in epoch {role.epoch}, leader {_shown(self.leader_id)}")
        if not isinstance(role, Leader):
            self.announce(self.leader_id)
        if isinstance(left, Leader):
            self._refuse_waiting(left)
        transfer = _transfer_of(left)
        if transfer is not None and _transfer_of(role) is None:
            self.emit(DropSnapshot(transfer.snapshot))

    def _refuse_waiting(self, left: Leader) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        refusal = FetchResponse(
            error=error, leadership=self.leadership, log_start_offset=self.log.start_offset
        )
        for token in left.waiting:
            self.emit(Respond(token, refusal))
        if left.change is not None:
            self.answer_voter_change(left.change.token, error)

    def answer_voter_change(
        self, token: Token | None, error: ErrorCode, message: str | None = None
    ) -> None:
        if token is not None:
            self.emit(
                Respond(
                    token,
                    ChangeVotersResponse(error=error, message=message, leadership=self.leadership),
                )
            )

    def announce(self, leader_id: BrokerId) -> None:
        changed = LeaderChanged(self.epoch, leader_id)
        was = self._announced
        if leader_id != was.leader_id or (leader_id != NO_LEADER and changed.epoch != was.epoch):
            self._announced = changed
            self.emit(changed)

    # Elections

    def _vote_in(self, epoch: LeaderEpoch) -> VoterKey | None:
        """This node's vote in the epoch, if it is the current one."""
        if epoch != self.epoch:
            return None
        match self.role:
            case Candidate():
                return self.local.key
            case Unattached() | Prospective() | Follower():
                return self.role.voted_for
            case Leader() | Resigned():
                return None

    def _store(self) -> None:
        election = Election(
            epoch=self.epoch, leader_id=self.leader_id, voted_for=self._vote_in(self.epoch)
        )
        if election != self._stored:
            self._stored = election
            self.emit(StoreElection(election))

    def _next_election_ms(self) -> float:
        timeout_ms = self.options.election_timeout_ms
        spread_ms = self._chance.randrange(timeout_ms) if timeout_ms else 0
        return self.now_ms + timeout_ms + spread_ms

    def _first_election_ms(self) -> float:
        return self._next_election_ms() if self.may_lead else FOREVER_MS

    # Roles

    def _candidate(self, epoch: LeaderEpoch) -> Candidate:
        votes = Votes(self.voters, self.local.key.node_id)
        return Candidate(epoch=epoch, votes=votes, election_due_ms=self._next_election_ms())

    def _follower(
        self,
        epoch: LeaderEpoch,
        leader_id: BrokerId,
        endpoints: Endpoints,
        voted_for: VoterKey | None,
    ) -> Follower:
        due_ms = self.now_ms + self.options.fetch_timeout_ms
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            endpoints=endpoints,
            voted_for=voted_for,
            fetch_due_ms=due_ms,
            voter_update_due_ms=due_ms,
        )

    def _resigned(self, epoch: LeaderEpoch, successors: tuple[VoterKey, ...]) -> Resigned:
        others = [
            voter.key
            for node_id, voter in self.voters.by_id.items()
            if node_id != self.local.key.node_id
        ]
        return Resigned(
            epoch=epoch,
            unacknowledged=others,
            successors=successors,
            election_due_ms=self._next_election_ms(),
        )


def _transfer_of(role: Role) -> SnapshotTransfer | None:
    """The snapshot that is being fetched from the role's leader."""
    return role.transfer if isinstance(role, Follower | Prospective) else None


def _shown(leader_id: BrokerId) -> str:
    return "unknown" if leader_id == NO_LEADER else str(leader_id)
