"""The classic group protocol: members' requests (JoinGroup, SyncGroup, Heartbeat, LeaveGroup),
timers that fire, and what follows an append. Each of these events takes one turn.
"""

from collections import deque
from collections.abc import Callable
from typing import assert_never

from moldau.core.coordinator.effects import Append, Ticket, TimerKey
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.group_records import empty_group_record, group_record
from moldau.core.groups.joining import (
    Join,
    StaticMemberStored,
    join_error,
    join_group,
    static_member_appended,
    static_member_committed,
)
from moldau.core.groups.member import NO_ASSIGNMENT, NO_MEMBER_ID, Caller
from moldau.core.groups.rebalancing import (
    JOIN,
    SESSION,
    answer_syncs,
    complete_if_all_joined,
    drop_member,
    expect_heartbeat,
    join_time_is_up,
    membership_changed,
    prepare_rebalance,
    session_time_is_up,
    session_timer,
    sync_time_is_up,
    sync_timer,
)
from moldau.core.groups.registry import GroupRegistry
from moldau.core.groups.responses import join_refused, sync_refused, synced
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.states import GroupState
from moldau.core.groups.turns import GroupTurn
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@frozen
class GroupCreated:
    """The first member's JoinGroup continues once its group is in the log."""

    join: Join


@frozen
class AssignmentStored:
    """The leader's assignment is being appended. The group is stable once it is committed."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]


Sequel = GroupCreated | AssignmentStored | StaticMemberStored


class ClassicProtocol:
    def __init__(self, registry: GroupRegistry, settings: Callable[[], GroupSettings]) -> None:
        self._registry = registry
        self._settings = settings
        self._issued_ids: deque[tuple[str, str]] = deque()
        """Groups and member ids that were handed out, whether or not they were used."""

    def join(self, join: Join, turn: GroupTurn) -> None:
        settings = self._settings()
        error = join_error(join, settings)
        if error is not None:
            turn.reply(join.ticket, join_refused(error, join.member_id))
            return
        group = self._registry.get(join.group_id)
        if isinstance(group, ClassicGroup):
            self._join(group, join, turn)
        elif group is not None and not group.may_become_classic:
            turn.reply(join.ticket, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif join.member_id != NO_MEMBER_ID:
            refusal = join_refused(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
            turn.reply(join.ticket, refusal)
        elif join.protocol_type == "" or not join.protocols:
            turn.reply(join.ticket, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        else:
            # An empty group of another kind is replaced.
            left_over = [] if group is None else group.tombstones()
            created = empty_group_record(join.group_id, turn.now_ms)
            turn.append(
                Append(records=[*left_over, created], replays=True, sequel=GroupCreated(join))
            )

    def _join(self, group: ClassicGroup, join: Join, turn: GroupTurn) -> None:
        settings, pending_before = self._settings(), len(group.pending_members)
        join_group(group, join, settings, turn)
        if len(group.pending_members) > pending_before:
            self._issued_ids.append((group.group_id, join.new_member_id))
            if len(self._issued_ids) > settings.pending_members_max:
                self._forget_oldest(settings, turn)

    def _forget_oldest(self, settings: GroupSettings, turn: GroupTurn) -> None:
        group_id, member_id = self._issued_ids.popleft()
        group = self._registry.classic(group_id)
        if group is not None and member_id in group.pending_members:
            turn.stop_timer(session_timer(group, member_id))
            session_time_is_up(group, member_id, settings, turn)

    def sync(
        self,
        request: SyncGroupRequest,
        ticket: Ticket[SyncGroupResponse],
        caller: Caller,
        turn: GroupTurn,
    ) -> None:
        group = self._registry.classic(request.group_id)
        refusal = _sync_error(group, request, caller)
        if refusal is not None or group is None:
            turn.reply(ticket, sync_refused(refusal or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        member = group.members[request.member_id]
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            turn.stop_timer(sync_timer(group))
        if group.state is GroupState.STABLE:
            turn.reply(ticket, synced(group, member))
            return
        earlier, member.sync_ticket = member.sync_ticket, ticket
        if earlier is not None:
            turn.reply(earlier, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        if group.leader_id == member.member_id:
            by_member = {a.member_id: a.assignment for a in request.assignments}
            assignments = {m: by_member.get(m, NO_ASSIGNMENT) for m in group.members}
            sequel = AssignmentStored(group.group_id, group.generation, assignments)
            turn.append(Append(records=[group_record(group, assignments)], sequel=sequel))

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller, turn: GroupTurn
    ) -> HeartbeatResponse:
        """Changes nothing but the session timer."""
        group = self._registry.classic(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = request.member_id
        error = group.member_error(member_id, request.group_instance_id, caller.principal)
        if error is None and request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not None:
            return HeartbeatResponse(error_code=error)
        expect_heartbeat(group, group.members[member_id], turn)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
        return HeartbeatResponse(error_code=code)

    def leave(
        self,
        group_id: str,
        leaving: list[MemberIdentity],
        ticket: Ticket[LeaveGroupResponse],
        turn: GroupTurn,
    ) -> None:
        """Every client that may use the group may remove members, as administrators do."""
        group = self._registry.classic(group_id)
        codes = [
            ErrorCode.UNKNOWN_MEMBER_ID if group is None else _leave_one(group, member, turn)
            for member in leaving
        ]
        answer = LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=code,
                )
                for member, code in zip(leaving, codes, strict=True)
            ]
        )
        if group is not None and ErrorCode.NONE in codes:
            if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
                prepare_rebalance(group, self._settings(), turn)
            else:
                complete_if_all_joined(group, turn)
        turn.reply_when_durable(ticket, answer)

    # Other events

    def loaded(self, turn: GroupTurn) -> None:
        settings = self._settings()
        for group in self._registry.classic_groups():
            for member in group.members.values():
                expect_heartbeat(group, member, turn)
            if len(group.members) > settings.members_max:
                # A rebalance lets members commit before some of them are refused.
                prepare_rebalance(group, settings, turn)

    def unloaded(self, turn: GroupTurn) -> None:
        for group in self._registry.classic_groups():
            for member in group.members.values():
                ticket = group.park_join(member, None)
                if ticket is not None:
                    refusal = join_refused(ErrorCode.NOT_COORDINATOR, member.member_id)
                    turn.reply(ticket, refusal)
            answer_syncs(group, ErrorCode.NOT_COORDINATOR, turn)
            group.move_to(GroupState.DEAD, turn.now_ms)

    def timer_fired(self, key: TimerKey, turn: GroupTurn) -> None:
        kind, group_id, *rest = key
        group = self._registry.classic(group_id)
        if group is None:
            return
        if kind == SESSION:
            session_time_is_up(group, rest[0], self._settings(), turn)
        elif kind == JOIN:
            join_time_is_up(group, self._settings(), turn)
        else:
            sync_time_is_up(group, self._settings(), turn)

    def appended(self, sequel: Sequel, turn: GroupTurn) -> None:
        match sequel:
            case GroupCreated(join):
                group = self._registry.classic(join.group_id)
                assert group is not None, join
                self._join(group, join, turn)
            case StaticMemberStored(join):
                group = self._registry.classic(join.group_id)
                assert group is not None, join
                static_member_appended(group, sequel, turn)
            case AssignmentStored():
                pass
            case _:
                assert_never(sequel)

    def committed(self, sequel: Sequel, turn: GroupTurn) -> None:
        match sequel:
            case GroupCreated():
                pass
            case StaticMemberStored(join):
                group = self._registry.classic(join.group_id)
                if group is None:
                    turn.reply(join.ticket, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
                else:
                    static_member_committed(group, sequel, self._settings(), turn)
            case AssignmentStored(assignments=assignments):
                group = self._group_awaiting(sequel)
                if group is None:
                    return
                for member in group.members.values():
                    member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
                group.move_to(GroupState.STABLE, turn.now_ms)
                answer_syncs(group, None, turn)
            case _:
                assert_never(sequel)

    def failed(self, sequel: Sequel, code: ErrorCode, turn: GroupTurn) -> None:
        match sequel:
            case GroupCreated(join) | StaticMemberStored(join):
                # After the append the group exists; only the answer is lost.
                turn.reply(join.ticket, join_refused(code))
            case AssignmentStored():
                group = self._group_awaiting(sequel)
                if group is not None:
                    group.forget_assignments()
                    answer_syncs(group, code, turn)
                    membership_changed(group, self._settings(), turn)
            case _:
                assert_never(sequel)

    def _group_awaiting(self, stored: AssignmentStored) -> ClassicGroup | None:
        """The group that waits for the assignment; None if another rebalance made it obsolete."""
        group = self._registry.classic(stored.group_id)
        if (
            group is None
            or group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation != stored.generation
        ):
            return None
        return group


def _sync_error(
    group: ClassicGroup | None, request: SyncGroupRequest, caller: Caller
) -> ErrorCode | None:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.group_instance_id, caller.principal)
    if error is not None:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Old versions do not send the protocol.
    if request.protocol_type not in {None, group.protocol_type} or request.protocol_name not in {
        None,
        group.protocol_name,
    }:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _leave_one(group: ClassicGroup, leaving: MemberIdentity, turn: GroupTurn) -> ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if member_id == NO_MEMBER_ID and instance_id is not None:
        # Administrators name static members by their instance ids alone.
        member_id = group.static_ids.get(instance_id, NO_MEMBER_ID)
    if member_id in group.pending_members:
        group.remove(member_id)
        turn.stop_timer(session_timer(group, member_id))
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if instance_id is not None and group.static_ids.get(instance_id) not in {None, member_id}:
        return ErrorCode.FENCED_INSTANCE_ID
    if member is None or (instance_id is not None and member.instance_id != instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    turn.stop_timer(session_timer(group, member_id))
    drop_member(group, member, turn)
    return ErrorCode.NONE
