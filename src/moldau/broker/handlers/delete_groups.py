"""DeleteGroups: deletes groups without members, and their offsets."""

from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


async def handle_delete_groups(
    ctx: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = await ctx.broker.groups.delete_groups(request.groups_names)
    return DeleteGroupsResponse(results=results)
