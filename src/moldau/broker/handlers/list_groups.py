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
    selected = GroupFilter(request.states_filter, request.types_filter)
    try:
        groups = ctx.broker.groups.all_groups()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    return in_slices(selected.listed, groups, _response)


def _response(listed: list[ListedGroup | None]) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[each for each in listed if each is not None])
