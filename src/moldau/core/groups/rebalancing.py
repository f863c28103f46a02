"""The rebalance of a classic group: it is prepared until all members have joined or the timeout
expires; then a generation begins and waits for its leader's assignment. Also the group's timers
(session, join, sync) with what follows when one fires, and the removal of members.
"""

from moldau.core.coordinator.effects import Append, TimerKey
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.group_records import group_record
from moldau.core.groups.member import NO_MEMBER_ID, Member
from moldau.core.groups.responses import join_refused, joined, sync_refused, synced
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.states import GroupState, may_rebalance
from moldau.core.groups.turns import GroupTurn
from moldau.protocol.error_codes import ErrorCode

SESSION = "session"
JOIN = "join"
SYNC = "sync"


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    return (SESSION, group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerKey:
    return (JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    return (SYNC, group.group_id)


def expect_heartbeat(group: ClassicGroup, member: Member, turn: GroupTurn) -> None:
    turn.start_timer(session_timer(group, member.member_id), member.session_timeout_ms)


# Preparing


def membership_changed(group: ClassicGroup, settings: GroupSettings, turn: GroupTurn) -> None:
    """A member joined, left or changed its protocols: a new generation is needed."""
    if may_rebalance(group.state):
        prepare_rebalance(group, settings, turn)
    else:
        complete_if_all_joined(group, turn)


def prepare_rebalance(group: ClassicGroup, settings: GroupSettings, turn: GroupTurn) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        group.forget_assignments()
        answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    group.pending_syncs.clear()
    turn.stop_timer(sync_timer(group))
    if group.state is GroupState.EMPTY:
        # More members are likely to join right after the first.
        delay_ms = settings.initial_rebalance_delay_ms
        group.has_new_member = False
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
        turn.start_timer(join_timer(group), delay_ms)
        return
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
    if group.all_joined:
        complete_join(group, turn)
    else:
        turn.start_timer(join_timer(group), group.rebalance_timeout_ms)


def join_time_is_up(group: ClassicGroup, settings: GroupSettings, turn: GroupTurn) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    remaining_ms = group.initial_remaining_ms
    if group.is_initial_rebalance and group.has_new_member and remaining_ms:
        delay_ms = min(settings.initial_rebalance_delay_ms, remaining_ms)
        group.has_new_member = False
        group.initial_remaining_ms = remaining_ms - delay_ms
        turn.start_timer(join_timer(group), delay_ms)
    else:
        complete_join(group, turn)


def complete_if_all_joined(group: ClassicGroup, turn: GroupTurn) -> None:
    # A group's first rebalance always takes its full delay, even if all members have joined.
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and not group.is_initial_rebalance
        and group.all_joined
    ):
        complete_join(group, turn)


# A new generation


def complete_join(group: ClassicGroup, turn: GroupTurn) -> None:
    """Removes members that have not joined, except static ones, whose sessions decide."""
    turn.stop_timer(join_timer(group))
    for member in list(group.members.values()):
        if member.join_ticket is None and not member.is_static:
            group.remove(member.member_id)
            turn.stop_timer(session_timer(group, member.member_id))
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none has rejoined. Their sessions will expire.
        group.initial_remaining_ms = 0
        turn.start_timer(join_timer(group), group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.now_ms)
    if group.members:
        _announce_generation(group, turn)
    else:
        # If this is lost, the log still has the members, whose sessions will expire again.
        turn.append(Append(records=[group_record(group, {})]))


def _announce_generation(group: ClassicGroup, turn: GroupTurn) -> None:
    for member in group.members.values():
        ticket = group.park_join(member, None)
        if ticket is not None:
            turn.reply(ticket, joined(group, member.member_id))
        expect_heartbeat(group, member, turn)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    turn.start_timer(sync_timer(group), group.rebalance_timeout_ms)


def answer_syncs(group: ClassicGroup, code: ErrorCode | None, turn: GroupTurn) -> None:
    for member in group.members.values():
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            turn.reply(ticket, synced(group, member) if code is None else sync_refused(code))
            # Its session timer may have fired without effect while the request was parked.
            expect_heartbeat(group, member, turn)


def sync_time_is_up(group: ClassicGroup, settings: GroupSettings, turn: GroupTurn) -> None:
    """Removes members that did not request their assignment: they do not process it either."""
    if group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        return
    if group.pending_syncs:
        for member_id in sorted(group.pending_syncs):
            group.remove(member_id)
            turn.stop_timer(session_timer(group, member_id))
        prepare_rebalance(group, settings, turn)


# Leaving members


def drop_member(group: ClassicGroup, member: Member, turn: GroupTurn) -> None:
    """Removes the member. Its parked requests are refused, so that the client rejoins."""
    ticket = group.park_join(member, None)
    if ticket is not None:
        turn.reply(ticket, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
    if member.sync_ticket is not None:
        turn.reply(member.sync_ticket, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_ticket = None
    group.remove(member.member_id)


def session_time_is_up(
    group: ClassicGroup, member_id: str, settings: GroupSettings, turn: GroupTurn
) -> None:
    if member_id in group.pending_members:
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            complete_join(group, turn)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused():
        return
    drop_member(group, member, turn)
    if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
        prepare_rebalance(group, settings, turn)
    elif group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
        complete_join(group, turn)
