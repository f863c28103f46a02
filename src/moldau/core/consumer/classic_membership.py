"""The state machine of a member of a classic group.

UNJOINED -> (poll) PREPARING -> (prepared) JOINING -> (joined) SYNCING -> (synced) STABLE
STABLE -> (heartbeat: REBALANCE_IN_PROGRESS, or other topics) rejoins at the next poll
any -> (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION) UNJOINED; its partitions are lost
any -> (FENCED_INSTANCE_ID, not authorized, …) FAILED; the user gets the error
"""

from collections.abc import Sequence

from moldau.core.consumer.assignors.contract import (
    NO_GENERATION,
    Assignor,
    MemberView,
    RebalanceProtocol,
    Subscription,
)
from moldau.core.consumer.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_subscription,
)
from moldau.core.consumer.membership import (
    Assigned,
    AssignmentComputed,
    CommitRefused,
    ComputeAssignment,
    Effect,
    Event,
    Fail,
    HeartbeatAnswered,
    Joined,
    Left,
    MemberState,
    Partitions,
    Polled,
    PollExpired,
    Prepare,
    Prepared,
    RejoinNeeded,
    RequestFailed,
    SendRequest,
    SendWithoutReply,
    Subscribed,
    Synced,
)
from moldau.frozen import frozen
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_LOST_COORDINATOR = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
_LOST_MEMBERSHIP = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


@frozen(kw_only=True)
class MemberOptions:
    group_id: str
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """How long the group waits for a member to rejoin: max.poll.interval.ms."""


class ClassicMembership:
    def __init__(self, options: MemberOptions, assignors: Sequence[Assignor]) -> None:
        self._options = options
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = common_protocol(assignors)
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.assignor = ""
        self.is_leader = False
        self.owned: Partitions = ()
        self.topics: tuple[str, ...] = ()
        self._last_assigned: Partitions | None = None
        self._last_generation = NO_GENERATION
        self._must_rejoin = True
        self._is_lost = False
        self._reason = ""
        self._failure: KafkaError | None = None

    @property
    def needs_user(self) -> bool:
        if self.state is MemberState.STABLE:
            return self._must_rejoin
        return self.state in {MemberState.UNJOINED, MemberState.FAILED}

    @property
    def must_send_heartbeats(self) -> bool:
        # While JoinGroup or SyncGroup is parked, the coordinator expects no heartbeats.
        is_member = self.generation != NO_GENERATION and bool(self.member_id)
        return is_member and self.state in {
            MemberState.STABLE,
            MemberState.PREPARING,
            MemberState.UNJOINED,
        }

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
        )

    def step(self, event: Event) -> list[Effect]:  # noqa: C901, PLR0912 - one line per event
        match event:
            case Subscribed(topics):
                return self._subscribed(topics)
            case Polled():
                return self._polled()
            case Prepared():
                return self._prepared()
            case Joined():
                return self._joined(event)
            case AssignmentComputed():
                return self._assignment_computed(event)
            case Synced():
                return self._synced(event)
            case HeartbeatAnswered():
                return self._heartbeat_answered(event)
            case RequestFailed():
                return self._rejoin(find_coordinator=True)
            case RejoinNeeded(reason):
                self._request_rejoin(reason)
            case PollExpired():
                return self._leave("the user did not poll in time", is_lost=True)
            case CommitRefused(generation, code):
                if generation == self.generation:
                    self._lose_membership(code)
            case Left():
                return self._leave("the consumer is being closed", is_lost=False)
        return []

    # Reasons to rejoin.

    def _request_rejoin(self, reason: str) -> None:
        self._must_rejoin = True
        self._reason = reason

    def _subscribed(self, topics: tuple[str, ...]) -> list[Effect]:
        if set(topics) != set(self.topics):
            self.topics = topics
            self._request_rejoin("the subscription changed")
        return []

    def _polled(self) -> list[Effect]:
        if not self.needs_user or not self.topics:
            return []
        failure, self._failure = self._failure, None
        if failure is not None and failure.code is ErrorCode.FENCED_INSTANCE_ID:
            # Without this, two members with one instance id would fence each other forever.
            self._failure = failure
            return [Fail(failure)]
        self.state = MemberState.PREPARING
        is_lost, self._is_lost = self._is_lost, False
        if is_lost or self.protocol is RebalanceProtocol.EAGER:
            revoked = self.owned
        else:
            revoked = tuple(each for each in self.owned if each.topic not in self.topics)
        self.owned = tuple(each for each in self.owned if each not in set(revoked))
        return [Prepare(revoked, is_lost)]

    # Joining.

    def _prepared(self) -> list[Effect]:
        if self.state is not MemberState.PREPARING:
            return []
        # A user's assignor may raise: the next poll retries.
        self.state = MemberState.UNJOINED
        request = self._join_request()
        self.state = MemberState.JOINING
        self._must_rejoin = False
        return [SendRequest(request)]

    def _join_request(self) -> JoinGroupRequest:
        view = MemberView(
            topics=self.topics,
            last_assigned=self._last_assigned,
            generation=self._last_generation,
        )
        return JoinGroupRequest(
            group_id=self._options.group_id,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=self._options.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=write_subscription(
                        Subscription(
                            topics=self.topics,
                            user_data=assignor.user_data(view),
                            owned=self.owned,
                            generation=self._last_generation,
                            rack=self._options.rack,
                        )
                    ),
                )
                for name, assignor in self._assignors.items()
            ],
            reason=self._reason[:255],
        )

    def _rejoin(self, *, find_coordinator: bool = False) -> list[Effect]:
        """Restarts an interrupted rebalance with JoinGroup."""
        if self.state not in {MemberState.JOINING, MemberState.SYNCING}:
            return []
        self.state = MemberState.JOINING
        return [
            SendRequest(self._join_request(), after_failure=True, find_coordinator=find_coordinator)
        ]

    def _joined(self, event: Joined) -> list[Effect]:
        if self.state is not MemberState.JOINING:
            return []
        answer = event.answer
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            return self._begin_sync(event)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return [SendRequest(self._join_request())]
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            return self._start_over(code)
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            names = ", ".join(self._assignors)
            return self._fail(
                code, f"its members support none of the assignors {names}, or are not consumers"
            )
        if code in RETRIABLE or code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._rejoin(find_coordinator=code in _LOST_COORDINATOR)
        return self._fail(code)

    def _begin_sync(self, event: Joined) -> list[Effect]:
        answer = event.answer
        self.state = MemberState.SYNCING
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.assignor = answer.protocol_name or ""
        self.is_leader = answer.leader == answer.member_id
        if self.assignor not in self._assignors:
            return self._fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignor '{self.assignor}' was chosen"
            )
        if not self.is_leader or answer.skip_assignment:
            return [SendRequest(self._sync_request([]))]
        members = {
            each.member_id: read_subscription(bytes(each.metadata), each.group_instance_id)
            for each in answer.members
        }
        return [ComputeAssignment(self.generation, self.assignor, members)]

    def _assignment_computed(self, event: AssignmentComputed) -> list[Effect]:
        if self.state is not MemberState.SYNCING or event.generation != self.generation:
            return []
        return [
            SendRequest(
                self._sync_request(
                    [
                        SyncGroupRequestAssignment(member_id=member, assignment=content)
                        for member, content in event.shares.items()
                    ]
                )
            )
        ]

    def _sync_request(self, shares: list[SyncGroupRequestAssignment]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor,
            assignments=shares,
        )

    def _synced(self, event: Synced) -> list[Effect]:
        if self.state is not MemberState.SYNCING or event.generation != self.generation:
            return []
        code = error_code(event.answer.error_code)
        if code is ErrorCode.NONE:
            return self._take_assignment(read_assignment(bytes(event.answer.assignment)))
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            return self._start_over(code)
        if code in RETRIABLE or code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._rejoin(find_coordinator=code in _LOST_COORDINATOR)
        return self._fail(code)

    def _start_over(self, code: ErrorCode) -> list[Effect]:
        self._forget_membership(code)
        if not self.owned:
            return self._rejoin()
        # Partitions that a cooperative member kept may have a new owner: notify the user first.
        self._is_lost = True
        self.state = MemberState.UNJOINED
        self._request_rejoin(code.name)
        return []

    def _forget_membership(self, code: ErrorCode) -> None:
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = self._last_generation = NO_GENERATION

    def _take_assignment(self, share: Partitions) -> list[Effect]:
        self.state = MemberState.STABLE
        had = set(self.owned)
        added = tuple(each for each in share if each not in had)
        revoked: Partitions = ()
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            kept = set(share)
            revoked = tuple(each for each in self.owned if each not in kept)
            if revoked:
                # Another rebalance gives them to other members.
                self._request_rejoin("partitions were revoked for other members")
        self.owned = self._last_assigned = share
        self._last_generation = self.generation
        return [Assigned(share, added, revoked)]

    # Heartbeats and leaving.

    def _heartbeat_answered(self, event: HeartbeatAnswered) -> list[Effect]:
        if event.generation != self.generation or event.member_id != self.member_id:
            return []
        if event.code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is MemberState.STABLE and not self._must_rejoin:
                self._request_rejoin("the group is rebalancing")
            return []
        if event.code is ErrorCode.FENCED_INSTANCE_ID:
            return self._fail(event.code, "another member has this group.instance.id")
        if event.code in _LOST_MEMBERSHIP:
            self._lose_membership(event.code)
            return []
        if event.code is ErrorCode.NONE or event.code in RETRIABLE:
            return []
        return self._fail(event.code)

    def _lose_membership(self, code: ErrorCode) -> None:
        if self.state in {MemberState.JOINING, MemberState.SYNCING}:
            # The response to the request in flight is more precise.
            return
        self._forget_membership(code)
        self._is_lost = True
        self.state = MemberState.UNJOINED
        self._request_rejoin(code.name)

    def _leave(self, reason: str, *, is_lost: bool) -> list[Effect]:
        effects: list[Effect] = []
        # Static members do not leave: they keep their partitions.
        if self.member_id and self._options.instance_id is None:
            effects.append(SendWithoutReply(self._leave_request(reason)))
        self.member_id = ""
        self.generation = self._last_generation = NO_GENERATION
        self._is_lost = is_lost
        if not is_lost:
            self.owned = ()
        self.state = MemberState.UNJOINED
        self._request_rejoin(reason)
        return effects

    def _leave_request(self, reason: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self._options.group_id,
            members=[MemberIdentity(member_id=self.member_id, reason=reason)],
        )

    def _fail(self, code: ErrorCode, detail: str = "") -> list[Effect]:
        self.state = MemberState.FAILED
        self._is_lost = True
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._forget_membership(code)
        text = f"group '{self._options.group_id}'" + (f": {detail}" if detail else "")
        self._failure = KafkaError(code, text)
        return [Fail(self._failure)]


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The best protocol that all assignors support, so that members can switch between them."""
    for protocol in (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER):
        if all(protocol in assignor.protocols for assignor in assignors):
            return protocol
    raise ValueError("these assignors have no rebalance protocol in common")
