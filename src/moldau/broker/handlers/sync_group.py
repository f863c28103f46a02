"""SyncGroup: the leader sends the assignment; each member gets its part once it is in the log."""

from moldau.broker.coordinators.group_requests import caller_of
from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_REQUIRED_FROM = 5


async def handle_sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if ctx.version >= _PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.group_id == "":
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return await ctx.broker.groups.sync(request, caller_of(ctx))
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
