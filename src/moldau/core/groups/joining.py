"""JoinGroup for a classic group: which members are accepted, with which id, and when it rebalances.

A static member is identified by its instance id: if it joins without a member id, it replaces and
fences the member that had the instance id before.
"""

from dataclasses import replace

from moldau.core.coordinator.effects import Append
from moldau.core.groups.classic_group import ClassicGroup, select_protocol
from moldau.core.groups.group_records import group_record
from moldau.core.groups.member import NO_MEMBER_ID, Caller, JoinTicket, Member, Protocols
from moldau.core.groups.rebalancing import (
    complete_if_all_joined,
    expect_heartbeat,
    membership_changed,
    prepare_rebalance,
    session_timer,
)
from moldau.core.groups.responses import join_refused, joined, sync_refused
from moldau.core.groups.settings import MEMBER_NAME_CHARS_MAX, PROTOCOLS_MAX, GroupSettings
from moldau.core.groups.states import GroupState
from moldau.core.groups.turns import GroupTurn
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode

MEMBER_ID_REQUIRED_FROM = 4
"""The first version in which a new member joins twice: an abandoned first try leaves no member."""
SKIPS_ASSIGNMENT_FROM = 9


@frozen(kw_only=True)
class Join:
    ticket: JoinTicket
    version: int
    caller: Caller
    group_id: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_id: str
    """A random part that makes the member id unique."""

    @property
    def new_member_id(self) -> str:
        name = self.instance_id or self.caller.client_id
        return f"{name[:MEMBER_NAME_CHARS_MAX]}-{self.fresh_id}"


@frozen
class StaticMemberStored:
    """A static member's new id is being appended; the generation stays the same."""

    join: Join
    old_id: str
    new: Member


def join_error(join: Join, settings: GroupSettings) -> ErrorCode | None:
    """Checks that do not depend on the group."""
    if join.group_id == "":
        return ErrorCode.INVALID_GROUP_ID
    shortest, longest = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not shortest <= join.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    metadata_max = settings.protocol_metadata_bytes_max
    if len(join.protocols) > PROTOCOLS_MAX or any(
        len(metadata) > metadata_max for _, metadata in join.protocols
    ):
        return ErrorCode.INVALID_REQUEST
    return None


def join_group(group: ClassicGroup, join: Join, settings: GroupSettings, turn: GroupTurn) -> None:
    if not _has_room(group, join.member_id, settings):
        group.remove(join.member_id)
        turn.stop_timer(session_timer(group, join.member_id))
        turn.reply(join.ticket, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
        complete_if_all_joined(group, turn)
    elif not group.supports(join.protocol_type, join.protocols):
        refusal = join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        turn.reply(join.ticket, refusal)
    elif join.member_id != NO_MEMBER_ID:
        _join_known(group, join, settings, turn)
    elif join.instance_id is not None:
        _join_static(group, join, settings, turn)
    elif join.version >= MEMBER_ID_REQUIRED_FROM:
        _issue_id(group, join, turn)
    else:
        _add(group, join, join.new_member_id, settings, turn)


def _has_room(group: ClassicGroup, member_id: str, settings: GroupSettings) -> bool:
    members_max = settings.members_max
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Only members that have joined count, so a group above a lowered limit loses those
            # that rejoin last.
            has_joined = member is not None and member.join_ticket is not None
            return has_joined or group.joined_count < members_max
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < members_max


def _issue_id(group: ClassicGroup, join: Join, turn: GroupTurn) -> None:
    member_id = join.new_member_id
    group.pending_members.add(member_id)
    turn.start_timer(session_timer(group, member_id), join.session_timeout_ms)
    turn.reply(join.ticket, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _new_member(join: Join, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=join.instance_id,
        client_id=join.caller.client_id,
        client_host=join.caller.client_host,
        principal=join.caller.principal,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=join.session_timeout_ms,
        protocols=join.protocols,
        join_ticket=join.ticket,
        is_new=True,
    )


def _add(
    group: ClassicGroup, join: Join, member_id: str, settings: GroupSettings, turn: GroupTurn
) -> None:
    if group.is_initial_rebalance:
        group.has_new_member = True
    group.add(_new_member(join, member_id), join.protocol_type)
    # A client that gives up and retries with a new id leaves a dead member, which times out.
    turn.start_timer(session_timer(group, member_id), settings.new_member_join_timeout_ms)
    membership_changed(group, settings, turn)


# Known members


def _join_known(group: ClassicGroup, join: Join, settings: GroupSettings, turn: GroupTurn) -> None:
    member_id = join.member_id
    if member_id in group.pending_members:
        if join.instance_id is not None:
            # Static members are never pending: this id belongs to another client.
            turn.reply(join.ticket, join_refused(ErrorCode.INVALID_REQUEST, member_id))
        else:
            _add(group, join, member_id, settings, turn)
        return
    error = group.member_error(member_id, join.instance_id, join.caller.principal)
    if error is not None or group.state is GroupState.EMPTY:
        turn.reply(join.ticket, join_refused(error or ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        return
    member = group.members[member_id]
    if _repeats_itself(group, member, join):
        # The answer may have been lost: repeat it.
        turn.reply(join.ticket, joined(group, member_id))
        return
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.session_timeout_ms
    member.principal = join.caller.principal
    earlier = group.renew(member, join.protocols, join.ticket)
    if earlier is not None:
        # The member retries over a new connection.
        turn.reply(earlier, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    membership_changed(group, settings, turn)


def _repeats_itself(group: ClassicGroup, member: Member, join: Join) -> bool:
    if member.protocols != join.protocols:
        return False
    match group.state:
        case GroupState.COMPLETING_REBALANCE:
            return True
        case GroupState.STABLE:
            # A leader rejoins when the assignment has to change, for example for new partitions.
            return group.leader_id != member.member_id
        case _:
            return False


# Static members without a member id


def _join_static(group: ClassicGroup, join: Join, settings: GroupSettings, turn: GroupTurn) -> None:
    assert join.instance_id is not None, join
    old_id = group.static_ids.get(join.instance_id)
    if old_id is None:
        _add(group, join, join.new_member_id, settings, turn)
        return
    old = group.members[old_id]
    new = _new_member(join, join.new_member_id)
    new.assignment, new.is_new = old.assignment, False
    members = group.members_with(old_id, new)
    if group.state is GroupState.STABLE and select_protocol(members) == group.protocol_name:
        leader_id = new.member_id if group.leader_id == old_id else None
        assignments = {m.member_id: m.assignment for m in members}
        record = group_record(group, assignments, members=members, leader_id=leader_id)
        new.join_ticket = None
        turn.append(Append(records=[record], sequel=StaticMemberStored(join, old_id, new)))
        return
    _fence(group, old, new, turn)
    expect_heartbeat(group, new, turn)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(group, turn)
    else:
        # In CompletingRebalance the leader may have received the old id, and would assign to it.
        prepare_rebalance(group, settings, turn)


def _fence(group: ClassicGroup, old: Member, new: Member, turn: GroupTurn) -> None:
    ticket = group.park_join(old, None)
    if ticket is not None:
        turn.reply(ticket, join_refused(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    if old.sync_ticket is not None:
        turn.reply(old.sync_ticket, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
        old.sync_ticket = None
    turn.stop_timer(session_timer(group, old.member_id))
    group.replace_static(old.member_id, new)


def static_member_appended(
    group: ClassicGroup, stored: StaticMemberStored, turn: GroupTurn
) -> None:
    _fence(group, group.members[stored.old_id], stored.new, turn)
    expect_heartbeat(group, stored.new, turn)


def static_member_committed(
    group: ClassicGroup, stored: StaticMemberStored, settings: GroupSettings, turn: GroupTurn
) -> None:
    """Before version 9 the response cannot make a leader skip the assignment. It names the
    leader's former id as leader instead, so that the member requests its assignment as a follower.
    """
    join, member_id = stored.join, stored.new.member_id
    if member_id not in group.members or group.state is not GroupState.STABLE:
        # A rebalance came in between: treat it as a new join.
        join_group(group, replace(join, member_id=member_id), settings, turn)
        return
    leads = group.leader_id == member_id
    if join.version >= SKIPS_ASSIGNMENT_FROM:
        turn.reply(join.ticket, joined(group, member_id, skips_assignment=leads))
        return
    answer = joined(group, member_id)
    answer.members = []
    if leads:
        answer.leader = stored.old_id
    turn.reply(join.ticket, answer)
