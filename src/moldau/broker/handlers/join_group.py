"""JoinGroup: a member joins, and waits for the group's new generation unless it is refused."""

from moldau.broker.coordinators.group_requests import caller_of
from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_REBALANCE_TIMEOUT_FROM = 1
_NO_PROTOCOL_IS_NULL_FROM = 7


async def handle_join_group(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    if ctx.version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    try:
        response = await _join(ctx, request)
    except KafkaError as error:
        response = JoinGroupResponse(error_code=error.code)
    if ctx.version < _NO_PROTOCOL_IS_NULL_FROM:
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response


async def _join(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    if request.group_id == "":
        # Refused even on nodes that coordinate nothing.
        return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=request.member_id)
    return await ctx.broker.groups.join(request, ctx.version, caller_of(ctx))
