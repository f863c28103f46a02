"""ListGroups: all groups that this node coordinates."""

from collections.abc import Awaitable

from moldau.broker.server.context import RequestContext
from moldau.core.groups.listing import GroupFilter
from moldau.net.slices import in_slices
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle_list_groups(
    ctx: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    if ctx.is_large:
        return _list_large(ctx, request)
    return _listed(ctx, GroupFilter(request.states_filter, request.types_filter))


async def _list_large(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    selected = await ctx.work(GroupFilter, request.states_filter, request.types_filter)
    response = _listed(ctx, selected)
    return response if isinstance(response, ListGroupsResponse) else await response


def _listed(
    ctx: RequestContext, selected: GroupFilter
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    try:
        groups = ctx.broker.groups.all_groups()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    return in_slices(selected.listed, groups, _response)


def _response(listed: list[ListedGroup | None]) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[each for each in listed if each is not None])
