"""LeaveGroup: one member leaves, or an administrator removes several."""

from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from moldau.protocol.versions import LEAVE_GROUP_MEMBERS


async def handle_leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if request.group_id == "":
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    members = request.members
    if ctx.version < LEAVE_GROUP_MEMBERS:
        members = [MemberIdentity(member_id=request.member_id)]
    try:
        response = await ctx.broker.groups.leave(request.group_id, members)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if ctx.version < LEAVE_GROUP_MEMBERS:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
