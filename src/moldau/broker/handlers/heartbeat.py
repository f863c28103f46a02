"""Heartbeat: keeps a member alive, and the response says whether it must rejoin."""

from moldau.broker.coordinators.group_requests import caller_of
from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle_heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if request.group_id == "":
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return ctx.broker.groups.heartbeat(request, caller_of(ctx))
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Sessions restart when the group is loaded, so the member has nothing to do.
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=error.code)
