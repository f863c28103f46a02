"""DescribeGroups: classic groups with their members. A group that is named again is answered once:
Kafka answers it again, however large it is.
"""

from collections.abc import Awaitable

from moldau.broker.cluster_view import authorized_operations
from moldau.broker.context import RequestContext
from moldau.net.slices import in_slices
from moldau.protocol.enums import ResourceType
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle_describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    def describe(group_id: str) -> DescribedGroup:
        try:
            group = ctx.broker.groups.describe_group(group_id, ctx.version)
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(ResourceType.GROUP)
        return group

    return in_slices(
        describe,
        dict.fromkeys(request.groups),
        lambda described: DescribeGroupsResponse(groups=described),
    )
