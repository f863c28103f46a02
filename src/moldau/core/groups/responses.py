"""Responses of classic groups that are built in more than one place."""

from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.member import NO_MEMBER_ID, Member
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from moldau.protocol.messages.sync_group import SyncGroupResponse


def join_refused(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def joined(
    group: ClassicGroup, member_id: str, *, skips_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation; only the leader gets the list of members."""
    leads = group.leader_id == member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skips_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_for(group.protocol_name),
            )
            for member in (group.members.values() if leads else ())
        ],
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
