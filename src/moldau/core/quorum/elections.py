"""Elections: requesting votes, granting them, and following the epochs and leaders that other nodes
report.
"""

from moldau.core.quorum.events import Respond, Token
from moldau.core.quorum.leading import begin_epoch
from moldau.core.quorum.peers import FOREVER_MS
from moldau.core.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from moldau.core.quorum.rpc import (
    BeginQuorumEpochRequest,
    Endpoints,
    EndQuorumEpochRequest,
    Failure,
    Leadership,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from moldau.core.quorum.state import QuorumState
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.types import NO_LEADER, LeaderEpoch


class Elections:
    def __init__(self, state: QuorumState) -> None:
        self._state = state
        self._refused_epoch = LeaderEpoch(-1)

    # Asking for votes

    def stand(self) -> None:
        """Asks first whether an election would succeed: a node that was cut off must not disturb a
        leader that the others hear.
        """
        self._state.become_prospective()
        self.step_forward()

    def poll(self) -> float:
        """Sends the requests that are due; returns when to call it again."""
        state, role = self._state, self._state.role
        assert isinstance(role, Prospective | Candidate)
        if state.is_stopping:
            return self._ask_for_votes(role)
        if state.now_ms < role.election_due_ms:
            return min(self._ask_for_votes(role), role.election_due_ms)
        if isinstance(role, Candidate):
            self.stand()
        else:
            self._give_up(role)
        return state.now_ms

    def _ask_for_votes(self, role: Prospective | Candidate) -> float:
        if role.votes.is_lost:
            return FOREVER_MS
        return min(
            (self._state.ask(key, self._vote_request(key)) for key in role.votes.missing),
            default=FOREVER_MS,
        )

    def _vote_request(self, voter: VoterKey) -> VoteRequest:
        state = self._state
        return VoteRequest(
            epoch=state.epoch,
            candidate=state.local.key,
            last=state.log.end,
            is_pre_vote=isinstance(state.role, Prospective),
            voter=voter,
        )

    def step_forward(self) -> None:
        """As far as the votes allow: a single voter becomes leader at once."""
        state = self._state
        if isinstance(state.role, Prospective) and state.role.votes.is_won:
            state.become_candidate()
        if isinstance(state.role, Candidate) and state.role.votes.is_won:
            begin_epoch(state, state.role.votes.granting)

    def _give_up(self, role: Prospective) -> None:
        """The other voters may still reach the leader that this node cannot reach."""
        state = self._state
        if role.leader_id != NO_LEADER and role.endpoints:
            state.become_follower(role.epoch, role.leader_id, role.endpoints)
        else:
            state.become_unattached(role.epoch, role.leader_id)

    def vote_received(self, node_id: int, response: VoteResponse) -> bool:
        handled = self.learn(response.error, response.leadership)
        if handled is not None:
            return handled
        if response.error is not ErrorCode.NONE:
            return False
        role = self._state.role
        if isinstance(role, Prospective) and role.is_leader_gone and not response.is_granted:
            # It is asked again after a pause.
            return False
        if isinstance(role, Prospective | Candidate):
            role.votes.count(node_id, is_granted=response.is_granted)
            self.step_forward()
            if role is self._state.role and isinstance(role, Prospective) and role.votes.is_lost:
                self._give_up(role)
        return True

    def vote_failed(self, failure: Failure) -> None:
        """A voter without support for pre-votes only answers a real vote."""
        if failure is Failure.UNSUPPORTED and isinstance(self._state.role, Prospective):
            self._state.become_candidate()
            self.step_forward()

    # Granting votes

    def answer_vote(self, token: Token, request: VoteRequest) -> None:
        error, is_granted = self._vote(request)
        self._state.emit(
            Respond(
                token,
                VoteResponse(error=error, leadership=self._state.leadership, is_granted=is_granted),
            )
        )

    def _vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        state, last = self._state, request.last
        if last.offset < 0 or last.epoch < 0 or not _is_possible(request):
            return ErrorCode.INVALID_REQUEST, False
        if request.candidate.node_id == state.local.key.node_id:
            # A vote for another node of this id would be read as one for this node. Not an error:
            # a node of Apache's would stop at INVALID_REQUEST.
            return ErrorCode.NONE, False
        if error := self._check_sender(request.candidate.node_id, request.epoch):
            return error, False
        if request.epoch > state.epoch:
            state.become_unattached(request.epoch)
        if not self._is_for_this_node(request.voter):
            return ErrorCode.INVALID_VOTER_KEY, False
        is_granted = self._may_grant(request, is_up_to_date=last >= state.log.end)
        role = state.role
        if is_granted and not request.is_pre_vote:
            assert isinstance(role, Unattached | Prospective)
            if role.voted_for is None:
                state.vote_for(request.candidate)
        return ErrorCode.NONE, is_granted

    def _may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        match self._state.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched):
                # A node that fetches from a leader does not help to replace it.
                return request.is_pre_vote and is_up_to_date and not has_fetched
            case Candidate() | Resigned():
                return request.is_pre_vote and is_up_to_date
            case role if request.is_pre_vote:
                return is_up_to_date
            case role if role.voted_for is not None:
                # The same question again: the first answer was lost.
                return role.voted_for.is_same(request.candidate)
            case role:
                return role.leader_id == NO_LEADER and is_up_to_date

    # The beginning and the end of an epoch

    def answer_begin_epoch(self, token: Token, request: BeginQuorumEpochRequest) -> None:
        error = self._check_sender(request.leader_id, request.epoch)
        if error is None:
            error = self._follow_sender(request)
        if error is None and not self._is_for_this_node(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        self._respond(token, error)

    def answer_end_epoch(self, token: Token, request: EndQuorumEpochRequest) -> None:
        error = self._check_sender(request.leader_id, request.epoch)
        if error is None:
            error = self._follow_sender(request)
        role = self._state.role
        if error is None and isinstance(role, Follower) and role.leader_id == request.leader_id:
            role.has_leader_resigned = True
            self._await_turn(role, request.successors)
        self._respond(token, error)

    def _await_turn(self, role: Follower, successors: tuple[VoterKey, ...]) -> None:
        """The leader is gone. Voters stand one after the other, so that votes are not split."""
        role.fetch_due_ms = self._state.now_ms + self._turn_ms(successors)
        role.is_leader_gone, role.has_fetched = True, False

    def _turn_ms(self, successors: tuple[VoterKey, ...]) -> int:
        """How long this node lets better candidates try first."""
        longest_ms = self._state.options.election_backoff_max_ms
        local = self._state.local.key
        for place, key in enumerate(successors):
            if key.is_same(local):
                if place == 0:
                    return 0
                return min(longest_ms, (longest_ms >> (len(successors) - 1)) << (place - 1))
        return longest_ms if successors else 0

    def _follow_sender(
        self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest
    ) -> ErrorCode | None:
        endpoints = request.endpoints or self._state.peers.endpoints_of(request.leader_id)
        if not self.follow(Leadership(request.epoch, request.leader_id, endpoints)):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return None

    def _respond(self, token: Token, error: ErrorCode | None) -> None:
        leadership = self._state.leadership
        self._state.emit(
            Respond(
                token, QuorumEpochResponse(error=error or ErrorCode.NONE, leadership=leadership)
            )
        )

    def _check_sender(self, node_id: int, epoch: LeaderEpoch) -> ErrorCode | None:
        if epoch < self._state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else None

    def _is_for_this_node(self, voter: VoterKey | None) -> bool:
        return voter is None or voter.is_same(self._state.local.key)

    # Epochs and leaders in requests and responses

    def learn(self, error: ErrorCode, leadership: Leadership) -> bool | None:
        """Learns of epochs and leaders from a response. True if nothing else in it matters,
        False if it is of no use, None if it is to be read.
        """
        state, role, epoch = self._state, self._state.role, leadership.epoch
        # Back off unless the response changed the role.
        if epoch < state.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        if epoch > state.epoch or error in _LEADER_CHANGED:
            return self.follow(self._with_endpoints(leadership)) and state.role is not role
        if leadership.leader_id != NO_LEADER and self._needs_leader():
            if not self.follow(self._with_endpoints(leadership)):
                return False
            return None if error is ErrorCode.NONE else state.role is not role
        return False if error in _OF_NO_USE else None

    def _needs_leader(self) -> bool:
        """An unattached node may know its leader's id, but not where it is. A resigned one knows
        that it was the leader itself.
        """
        match self._state.role:
            case Unattached() | Candidate():
                return True
            case Prospective(leader_id=leader_id):
                return leader_id == NO_LEADER
            case Leader() | Follower() | Resigned():
                return False

    def follow(self, leadership: Leadership) -> bool:
        """Into the epoch, behind its leader. False if that contradicts what this node knows."""
        state, leader_id, endpoints = self._state, leadership.leader_id, leadership.endpoints
        if not self._is_consistent(leadership):
            state.note(
                f"refused: leader {leader_id} in epoch {leadership.epoch}, "
                f"known is {state.leader_id} in epoch {state.epoch}"
            )
            return False
        is_later = leadership.epoch > state.epoch
        if leader_id != NO_LEADER and state.peers.address_of(leader_id, endpoints) is not None:
            if is_later or self._improves(endpoints):
                state.become_follower(leadership.epoch, leader_id, endpoints)
        elif is_later:
            # If there is a leader, others can say where it is.
            state.become_unattached(leadership.epoch, leader_id)
        return True

    def _is_consistent(self, leadership: Leadership) -> bool:
        state, leader_id = self._state, leadership.leader_id
        if leader_id == state.local.key.node_id:
            return isinstance(state.role, Leader) and leadership.epoch == state.epoch
        return (
            leadership.epoch != state.epoch
            or NO_LEADER in {leader_id, state.leader_id}
            or leader_id == state.leader_id
        )

    def _improves(self, endpoints: Endpoints) -> bool:
        """Whether this node can now follow a leader of its own epoch, or knows more addresses."""
        role = self._state.role
        match role:
            case Follower():
                return len(endpoints) > len(role.endpoints)
            case Prospective():
                # It is trying to replace that leader, and already knows its name.
                return role.leader_id == NO_LEADER or len(endpoints) > len(role.endpoints)
            case Unattached() | Candidate():
                return True
            case Leader() | Resigned():
                return False

    def _with_endpoints(self, leadership: Leadership) -> Leadership:
        if leadership.endpoints or leadership.leader_id == NO_LEADER:
            return leadership
        endpoints = self._state.peers.endpoints_of(leadership.leader_id)
        return Leadership(leadership.epoch, leadership.leader_id, endpoints)

    def leader_has_ended(self) -> None:
        """Nothing listens at the leader's address. Its voters need not wait for a time-out; the
        pre-vote protects a leader that others still hear. Once in an epoch, and not if the leader
        has resigned: then it has named the order.
        """
        state, role = self._state, self._state.role
        if (
            isinstance(role, Follower)
            and not role.is_leader_gone
            and state.may_lead
            and not state.is_stopping
            and self._refused_epoch != state.epoch
        ):
            self._refused_epoch = state.epoch
            state.note(f"the process of leader {role.leader_id} has ended")
            others = (voter.key for voter in state.voters.by_id.values())
            self._await_turn(
                role, tuple(sorted(key for key in others if key.node_id != role.leader_id))
            )


_LEADER_CHANGED = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_OF_NO_USE = frozenset(
    {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_VOTER_KEY}
)


def _is_possible(request: VoteRequest) -> bool:
    """A log has no records of the epoch that a candidate has just begun."""
    last = request.last
    return last.epoch <= request.epoch if request.is_pre_vote else last.epoch < request.epoch
