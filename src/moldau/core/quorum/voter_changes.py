"""Changes of the voters (KIP-853): one at a time, and only after the change before is committed, so
that the majorities before and after have a node in common.
"""

from moldau.core.quorum import refusal_texts as texts
from moldau.core.quorum.control_values import ControlValues, version_values, voters_values
from moldau.core.quorum.events import AppendControlBatch, Token
from moldau.core.quorum.leading import Leading
from moldau.core.quorum.peers import FOREVER_MS
from moldau.core.quorum.roles import Leader, VoterChange
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from moldau.core.quorum.state import QuorumState
from moldau.core.quorum.voters import Voter, VoterSet
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import NO_OFFSET


class VoterChanges:
    def __init__(self, state: QuorumState, leading: Leading) -> None:
        self._state = state
        self._leading = leading

    def poll(self) -> float:
        """While leading: finishes a change, or gives it up if it takes too long; returns when to
        look again.
        """
        leader = self._leader
        self.committed()
        if leader.change is not None and self._state.now_ms >= leader.change.due_ms:
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT)
        return FOREVER_MS if leader.change is None else leader.change.due_ms

    @property
    def _leader(self) -> Leader:
        assert isinstance(self._state.role, Leader)
        return self._state.role

    # Adding a voter

    def answer_add(self, token: Token, request: AddVoterRequest) -> None:
        """Sends ApiVersions to the new voter, and appends the change after its response."""
        state, voter = self._state, request.voter
        destination = state.peers.address_of(voter.node_id, request.endpoints)
        if error := self._leading.check_leading(state.epoch):
            self._respond(token, error)
        elif voter.node_id < 0 or not voter.has_directory:
            self._respond(token, ErrorCode.INVALID_REQUEST, texts.NO_VOTER_TO_ADD)
        elif destination is None:
            self._respond(
                token,
                ErrorCode.INVALID_REQUEST,
                texts.no_address(request.endpoints, state.options.listener),
            )
        elif reason := self._reason_to_wait("adding"):
            self._respond(token, *reason)
        elif voter.node_id in state.voters.by_id:
            self._respond(
                token,
                ErrorCode.DUPLICATE_VOTER,
                texts.duplicate_voter(voter, state.voters),
            )
        elif not state.connections.is_ready(voter.node_id, state.now_ms):
            self._respond(token, ErrorCode.REQUEST_TIMED_OUT, texts.not_ready(voter))
        else:
            correlation = state.send(destination, ApiVersionsRequest())
            self._leader.change = VoterChange(
                token=token,
                due_ms=state.now_ms + state.options.request_timeout_ms,
                added=voter,
                endpoints=request.endpoints,
                is_acknowledged_when_committed=request.is_acknowledged_when_committed,
                correlation=correlation,
            )

    def versions_received(self, correlation: int, response: ApiVersionsResponse) -> bool:
        state, leader = self._state, self._state.role
        change = leader.change if isinstance(leader, Leader) else None
        if (
            not isinstance(leader, Leader)
            or change is None
            or change.added is None
            or change.correlation != correlation
        ):
            return True
        change.correlation = None
        level = state.history.kraft_version
        if response.error is not ErrorCode.NONE:
            detail = texts.versions_refused(response.error.name)
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, detail)
            return False
        lowest, highest = response.kraft_versions or (0, 0)
        if not lowest <= level <= highest:
            detail = texts.unsupported_level(change.added, (lowest, highest), level)
            self._finish(leader, ErrorCode.INVALID_REQUEST, detail)
        elif not self._leading.is_caught_up(change.added):
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, texts.lagging(change.added))
        else:
            added = Voter(
                key=change.added,
                endpoints=change.endpoints,
                kraft_versions=(lowest, highest),
            )
            self._append(voters_values(state.voters.updated(added)))
        return True

    def no_versions(self, correlation: int) -> None:
        leader = self._state.role
        change = leader.change if isinstance(leader, Leader) else None
        if isinstance(leader, Leader) and change and change.correlation == correlation:
            detail = texts.versions_refused(ErrorCode.BROKER_NOT_AVAILABLE.name)
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, detail)

    # Removing and updating voters

    def answer_remove(self, token: Token, request: RemoveVoterRequest) -> None:
        state, voter = self._state, request.voter
        if error := self._leading.check_leading(state.epoch):
            self._respond(token, error)
        elif voter.node_id < 0 or not voter.has_directory:
            self._respond(token, ErrorCode.INVALID_REQUEST, texts.NO_VOTER_TO_REMOVE)
        elif reason := self._reason_to_wait("removing"):
            self._respond(token, *reason)
        elif voter not in state.voters or len(state.voters.by_id) == 1:
            detail = texts.cannot_be_removed(voter, state.voters)
            self._respond(token, ErrorCode.VOTER_NOT_FOUND, detail)
        else:
            self._leader.change = VoterChange(
                token=token, due_ms=state.now_ms + state.options.request_timeout_ms
            )
            self._append(voters_values(state.voters.without(voter)))

    def answer_update(self, token: Token, request: UpdateVoterRequest) -> None:
        """A voter reports its endpoints and versions. With kraft.version 0 only the leader's
        memory changes: that is what the upgrade will write.
        """
        state, leader = self._state, self._state.role
        voter = Voter(
            key=request.voter,
            endpoints=request.endpoints,
            kraft_versions=request.kraft_versions,
        )
        error = self._leading.check_leading(request.epoch)
        if error is None and not self._is_update(request):
            error = ErrorCode.INVALID_REQUEST
        if error is not None or not isinstance(leader, Leader):
            self._respond(token, error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        voters = state.voters if state.is_reconfigurable else leader.static_voters
        if (
            voters is None
            or leader.change is not None
            or leader.high_watermark == NO_OFFSET
            or (state.is_reconfigurable and not self._is_settled(leader))
        ):
            self._respond(token, ErrorCode.REQUEST_TIMED_OUT)
            return
        if not voter.supports(state.history.kraft_version):
            error = ErrorCode.INVALID_REQUEST
        elif not self._knows(voters, voter):
            error = ErrorCode.VOTER_NOT_FOUND
        elif state.is_reconfigurable:
            self._append(voters_values(voters.updated(voter)))
        else:
            leader.static_voters = voters.updated(voter)
        if error is None:
            self._leading.heard_from(request.voter)
        self._respond(token, error or ErrorCode.NONE)

    def _is_update(self, request: UpdateVoterRequest) -> bool:
        lowest, highest = request.kraft_versions
        address = self._state.peers.address_of(request.voter.node_id, request.endpoints)
        return (
            request.voter.node_id >= 0
            and request.voter.has_directory
            and address is not None
            and 0 <= lowest <= highest
        )

    def _knows(self, voters: VoterSet, voter: Voter) -> bool:
        if self._state.is_reconfigurable:
            return voter.key in voters
        return voter.key.node_id in voters.by_id

    # kraft.version

    def check_upgrade(self, level: int) -> None:
        """Raises KafkaError if kraft.version cannot be raised to the level."""
        current, voters = self._state.history.kraft_version, self._leader.static_voters
        if level < current:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of kraft.version from version {_shown(current)} to "
                f"{_shown(level)} because the new version is a downgrade",
            )
        if level == current or voters is None:
            return
        if not all(voter.supports(level) for voter in voters.by_id.values()):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of kraft.version to {_shown(level)} because not all of the "
                "voters support it",
            )
        if not all(voter.key.has_directory for voter in voters.by_id.values()):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Directory id must be known for all of the voters: {voters}",
            )

    def upgrade(self, level: int) -> None:
        voters = self._leader.static_voters
        if voters is not None and level > self._state.history.kraft_version:
            self._append(version_values(level) + voters_values(voters))

    # A change at work

    def appended(self) -> None:
        """While leading: the record of a change is in the log."""
        leader, history = self._leader, self._state.history
        if self._state.is_reconfigurable:
            leader.static_voters = None
        change = leader.change
        if change is not None and change.correlation is None and change.offset == NO_OFFSET:
            change.offset = history.voters_offset
            if not change.is_acknowledged_when_committed:
                self._state.answer_voter_change(change.token, ErrorCode.NONE)
                change.token = None

    def refused(self, reason: str) -> None:
        """While leading: the record of a change is not in the log."""
        self._finish(self._leader, ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def committed(self) -> None:
        """While leading: perhaps the high watermark has passed the record of a change."""
        leader, state = self._leader, self._state
        change = leader.change
        if change is not None and NO_OFFSET < change.offset < leader.high_watermark:
            self._finish(leader, ErrorCode.NONE)
        if not state.is_voter and self._is_settled(leader) and not leader.is_resigning:
            state.note("the voters removed this leader from the quorum")
            leader.is_resigning = True

    def _finish(self, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
        change, leader.change = leader.change, None
        if change is not None:
            self._state.answer_voter_change(change.token, error, message)

    def _append(self, values: ControlValues) -> None:
        self._state.emit(AppendControlBatch(self._state.epoch, values))

    def _respond(self, token: Token, error: ErrorCode, message: str | None = None) -> None:
        self._state.answer_voter_change(token, error, message)

    def _reason_to_wait(self, change: str) -> tuple[ErrorCode, str] | None:
        """Why no change can begin now. `change` is adding or removing."""
        leader, history = self._leader, self._state.history
        if leader.change is not None:
            reason = texts.CHANGE_PENDING
        elif leader.high_watermark == NO_OFFSET:
            reason = texts.NOTHING_COMMITTED
        elif not self._state.is_reconfigurable:
            detail = texts.fixed_voters(change, history.kraft_version)
            return ErrorCode.UNSUPPORTED_VERSION, detail
        elif not self._is_settled(leader):
            reason = texts.uncommitted_voters(history.voters_offset, leader.high_watermark)
        else:
            return None
        return ErrorCode.REQUEST_TIMED_OUT, reason

    def _is_settled(self, leader: Leader) -> bool:
        return self._state.history.voters_offset < leader.high_watermark


def _shown(level: int) -> str:
    """As Kafka names it in error messages."""
    return f"KRAFT_VERSION_{level}"
