"""ListGroups: all groups that this node coordinates."""

from moldau.broker.context import RequestContext
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle_list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        return ListGroupsResponse(groups=ctx.broker.groups.list_groups(request))
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
