"""The leader: it commits records, answers fetches, and resigns when it has lost its majority."""

from collections.abc import Iterable
from dataclasses import replace

from moldau.core.quorum.control_values import first_values
from moldau.core.quorum.events import (
    AppendControlBatch,
    Commit,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    StartEpoch,
    Token,
)
from moldau.core.quorum.peers import FOREVER_MS
from moldau.core.quorum.positions import (
    FIRST_POSITION,
    Diverging,
    NeedsSnapshot,
    Valid,
    check_follower,
)
from moldau.core.quorum.roles import Leader, Progress, Resigned, WaitingFetch
from moldau.core.quorum.rpc import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
)
from moldau.core.quorum.state import QuorumState
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.types import LeaderEpoch, Offset

# As in Kafka: an observer that has not fetched for this long is forgotten.
_OBSERVER_SESSION_MS = 300_000
# An observer that has not fetched for this long cannot become a voter.
_CAUGHT_UP_MS = 3_600_000
# More than any cluster has: requests with made-up ids must not fill the memory.
_OBSERVERS_MAX = 10_000


def begin_epoch(state: QuorumState, granting: Iterable[int]) -> None:
    """The election is won. The epoch's first record commits everything before it."""
    leader = state.become_leader()
    state.emit(
        StartEpoch(leader.epoch),
        AppendControlBatch(leader.epoch, first_values(state, granting)),
    )


class Leading:
    """Call its methods while the role is leader, unless they say otherwise."""

    def __init__(self, state: QuorumState) -> None:
        self._state = state

    @property
    def _leader(self) -> Leader:
        assert isinstance(self._state.role, Leader)
        return self._state.role

    # Time

    def poll(self) -> float:
        """Resigns without a majority, or sends BeginQuorumEpoch; returns when to call it again."""
        state, leader = self._state, self._leader
        needs_others = not state.is_only_voter
        has_lost = needs_others and state.now_ms >= leader.check_quorum_due_ms
        if has_lost:
            state.note("no majority of the voters has fetched for too long")
        if state.is_stopping or leader.is_resigning or has_lost:
            state.resign(self._successors(leader))
            return state.now_ms
        for token in [
            token for token, waiting in leader.waiting.items() if state.now_ms >= waiting.due_ms
        ]:
            self._answer_waiting(token)
        if state.now_ms >= leader.begin_epoch_due_ms:
            self._remind_voters(leader)
            leader.begin_epoch_due_ms = state.now_ms + state.options.begin_epoch_ms
        dues_ms = [waiting.due_ms for waiting in leader.waiting.values()]
        if needs_others:
            dues_ms += [leader.begin_epoch_due_ms, leader.check_quorum_due_ms]
        return min(dues_ms, default=FOREVER_MS)

    def _successors(self, leader: Leader) -> tuple[VoterKey, ...]:
        """The voters with the longest log first."""
        others = [
            progress
            for node_id, progress in leader.voters.items()
            if node_id != self._state.local.key.node_id
        ]
        others.sort(key=lambda progress: (-progress.end_offset, progress.key))
        return tuple(progress.key for progress in others)

    def _remind_voters(self, leader: Leader) -> None:
        """Those that do not fetch may not know about this leader."""
        state = self._state
        for node_id, progress in leader.voters.items():
            silent_ms = state.now_ms - progress.last_fetch_ms
            if node_id == state.local.key.node_id or silent_ms < state.options.begin_epoch_ms:
                continue
            request = BeginQuorumEpochRequest(
                epoch=leader.epoch,
                leader_id=state.local.key.node_id,
                endpoints=state.local.endpoints,
                voter=progress.key,
            )
            state.ask(progress.key, request)

    # The log

    def log_advanced(self) -> None:
        """Records were appended, perhaps with other voters."""
        leader = self._leader
        self._follow_voters(leader)
        self.count()
        end_offset = self._state.log.end.offset
        for token, waiting in list(leader.waiting.items()):
            if waiting.request.position.offset < end_offset:
                self._answer_waiting(token)

    def _follow_voters(self, leader: Leader) -> None:
        """Removed voters become observers and keep their progress, and the other way round."""
        known = leader.voters
        leader.voters = {}
        for node_id, voter in self._state.voters.by_id.items():
            progress = known.get(node_id)
            if progress is None or not progress.key.is_same(voter.key):
                progress = leader.observers.get(voter.key) or Progress(voter.key)
            leader.observers.pop(voter.key, None)
            progress.key = voter.key
            leader.voters[node_id] = progress
        for node_id, progress in known.items():
            if leader.voters.get(node_id) is not progress:
                leader.observers.setdefault(progress.key, progress)
                leader.fetched.pop(node_id, None)

    def count(self) -> None:
        """Raises the high watermark as far as a majority has the log on disk. A record of the
        leader's own epoch must be among them: only then can no other leader have different records
        at the offsets before it.
        """
        state, leader = self._state, self._leader
        self._progress_of(leader, state.local.key).end_offset = min(
            state.log.flushed_offset, state.log.end.offset
        )
        reached = majority_offset(progress.end_offset for progress in leader.voters.values())
        if reached <= max(leader.start_offset, leader.high_watermark):
            return
        leader.high_watermark = Offset(reached)
        state.known_high_watermark = max(state.known_high_watermark, leader.high_watermark)
        state.emit(Commit(leader.high_watermark))
        state.announce(state.local.key.node_id)
        for token in list(leader.waiting):
            self._answer_waiting(token)

    def _progress_of(self, leader: Leader, replica: VoterKey) -> Progress:
        progress = leader.voters.get(replica.node_id)
        if progress is not None and progress.key.is_same(replica):
            return progress
        if replica not in leader.observers and len(leader.observers) >= _OBSERVERS_MAX:
            self.forget_silent_observers()
        if len(leader.observers) < _OBSERVERS_MAX:
            return leader.observers.setdefault(replica, Progress(replica))
        return leader.observers.get(replica) or Progress(replica)

    # Fetches

    def answer_fetch(self, token: Token, request: FetchRequest) -> None:
        """In any role."""
        if not _is_possible(request):
            self._refuse_fetch(token, ErrorCode.INVALID_REQUEST)
            return
        if error := self.check_leading(request.epoch):
            self._refuse_fetch(token, error)
            return
        if request.replica.node_id == self._state.local.key.node_id:
            self._refuse_fetch(token, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        leader = self._leader
        outcome = check_follower(self._state.log, request.position)
        if isinstance(outcome, Valid):
            self._count_fetch(leader, request)
            if self._has_nothing_for(leader, request):
                due_ms = self._state.now_ms + request.max_wait_ms
                leader.waiting[token] = WaitingFetch(request=request, due_ms=due_ms)
                return
        self._answer_fetch(token, request)

    def _has_nothing_for(self, leader: Leader, request: FetchRequest) -> bool:
        return (
            request.max_wait_ms > 0
            and request.position.offset >= self._state.log.end.offset
            and request.high_watermark >= leader.high_watermark
        )

    def _count_fetch(self, leader: Leader, request: FetchRequest) -> None:
        state, replica = self._state, request.replica
        if replica.node_id < 0:
            return
        progress = self._progress_of(leader, replica)
        progress.fetched(request.position.offset, state.log.end.offset, state.now_ms)
        self.heard_from(replica)
        if progress is leader.voters.get(replica.node_id):
            self.count()

    def heard_from(self, replica: VoterKey) -> None:
        """Restarts the check-quorum time once a majority of the voters has fetched."""
        state, leader = self._state, self._leader
        voter = leader.voters.get(replica.node_id)
        if voter is not None and voter.key.is_same(replica):
            leader.fetched[replica.node_id] = None
        needed = len(leader.voters) // 2 + 1
        if state.local.key.node_id in leader.voters:
            needed -= 1
        if len(leader.fetched) >= needed:
            leader.fetched.clear()
            leader.check_quorum_due_ms = state.now_ms + state.options.check_quorum_ms

    def _answer_waiting(self, token: Token) -> None:
        """The follower's progress counted when the request came: since then only time passed."""
        waiting = self._leader.waiting.pop(token, None)
        if waiting is not None:
            self._answer_fetch(token, waiting.request)

    def _answer_fetch(self, token: Token, request: FetchRequest) -> None:
        state = self._state
        response = FetchResponse(
            leadership=state.leadership,
            high_watermark=self._leader.high_watermark,
            log_start_offset=state.log.start_offset,
        )
        match check_follower(state.log, request.position):
            case Diverging(position):
                state.emit(Respond(token, replace(response, diverging=position)))
            case NeedsSnapshot(snapshot):
                state.emit(Respond(token, replace(response, snapshot=snapshot)))
            case Valid():
                offset = request.position.offset
                state.emit(RespondWithRecords(token, response, offset, request.max_bytes))

    def _refuse_fetch(self, token: Token, error: ErrorCode) -> None:
        state = self._state
        response = FetchResponse(
            error=error, leadership=state.leadership, log_start_offset=state.log.start_offset
        )
        state.emit(Respond(token, response))

    def answer_fetch_snapshot(self, token: Token, request: FetchSnapshotRequest) -> None:
        """In any role."""
        state = self._state
        leadership = state.leadership
        error = self.check_leading(request.epoch)
        size = state.log.snapshot_size(request.snapshot)
        is_own = request.replica.node_id == state.local.key.node_id
        if error is None and (is_own or request.max_bytes < 0):
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if error is None and (size is None or request.snapshot == FIRST_POSITION):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is None and size is not None and not 0 <= request.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not None or size is None:
            response = FetchSnapshotResponse(
                error=error or ErrorCode.SNAPSHOT_NOT_FOUND, leadership=leadership
            )
            state.emit(Respond(token, response))
            return
        self.heard_from(request.replica)
        response = FetchSnapshotResponse(
            leadership=leadership,
            snapshot=request.snapshot,
            size=size,
            position=request.position,
        )
        state.emit(RespondWithSnapshot(token, response, request.max_bytes))

    def check_leading(self, epoch: LeaderEpoch) -> ErrorCode | None:
        """Whether a request for a leader in this epoch has found it. In any role."""
        state = self._state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if isinstance(state.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # Voters that are new, and observers that are gone

    def is_caught_up(self, observer: VoterKey) -> bool:
        """Whether it can become a voter without stopping the quorum."""
        progress = self._leader.observers.get(observer)
        if progress is None or progress.last_caught_up_ms < 0:
            return False
        return progress.last_fetch_ms > self._state.now_ms - _CAUGHT_UP_MS

    def forget_silent_observers(self) -> None:
        state, leader = self._state, self._leader
        for key, progress in list(leader.observers.items()):
            is_silent = state.now_ms - progress.last_fetch_ms >= _OBSERVER_SESSION_MS
            if is_silent and key != state.local.key:
                del leader.observers[key]


class Resigning:
    """Sends EndQuorumEpoch to the voters, so that they elect the next leader at
    once.
    """

    def __init__(self, state: QuorumState) -> None:
        self._state = state

    def poll(self) -> float:
        state, role = self._state, self._state.role
        assert isinstance(role, Resigned)
        if state.now_ms >= role.election_due_ms and not state.is_stopping:
            state.become_unattached(LeaderEpoch(role.epoch + 1))
            return state.now_ms
        due_ms = FOREVER_MS if state.is_stopping else role.election_due_ms
        request = EndQuorumEpochRequest(
            epoch=role.epoch,
            leader_id=state.local.key.node_id,
            endpoints=state.local.endpoints,
            successors=role.successors,
        )
        return min((due_ms, *(state.ask(key, request) for key in role.unacknowledged)))

    def acknowledged(self, node_id: int, response: QuorumEpochResponse) -> bool:
        role = self._state.role
        if response.error is not ErrorCode.NONE:
            return False
        if isinstance(role, Resigned):
            role.unacknowledged = [key for key in role.unacknowledged if key.node_id != node_id]
        return True


def majority_offset(reached: Iterable[int]) -> int:
    """The highest offset that more than half of the voters have reached."""
    descending = sorted(reached, reverse=True)
    return descending[len(descending) // 2]


def _is_possible(request: FetchRequest) -> bool:
    epoch, offset = request.position
    return request.max_wait_ms >= 0 and offset >= 0 and 0 <= epoch <= request.epoch
