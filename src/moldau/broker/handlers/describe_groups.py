"""DescribeGroups: classic groups with their members. As in Kafka a group is in the response as
often as it is in the request; it is described once, and a response that would be too large is
refused before it is encoded.
"""

from collections import Counter
from collections.abc import Awaitable

from moldau.broker.cluster.cluster_view import authorized_operations
from moldau.broker.server.context import RequestContext
from moldau.broker.server.exchange import ANSWER_BYTES_MAX
from moldau.net.slices import once_in_slices
from moldau.protocol.enums import ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from moldau.protocol.wire.codec import encode


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

    def answer(described: list[DescribedGroup]) -> DescribeGroupsResponse:
        if len(described) < len(request.groups):
            described = _repeated(described, request.groups, ctx.version)
        return DescribeGroupsResponse(groups=described)

    return once_in_slices(describe, request.groups, str, answer)


def _repeated(
    described: list[DescribedGroup], group_ids: list[str], version: int
) -> list[DescribedGroup]:
    times = Counter(group_ids)
    size = sum(
        times[group.group_id] * len(encode(DescribeGroupsResponse(groups=[group]), version))
        for group in described
        if times[group.group_id] > 1
    )
    if size > ANSWER_BYTES_MAX:
        detail = f"The answer to DESCRIBE_GROUPS would be {size} bytes: name groups once."
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    by_id = {group.group_id: group for group in described}
    return [by_id[group_id] for group_id in group_ids]
