"""DescribeGroups: classic groups with their members."""

from moldau.broker.cluster_view import authorized_operations
from moldau.broker.context import RequestContext
from moldau.protocol.enums import ResourceType
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle_describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    described = [_describe(ctx, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorized_operations(ResourceType.GROUP)
    return DescribeGroupsResponse(groups=described)


def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        return ctx.broker.groups.describe_group(group_id, ctx.version)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
