"""DescribeConfigs on the controller's listener: the same as on the broker's."""

from collections.abc import Awaitable

from moldau.broker.cluster.config_descriptions import described_configs
from moldau.broker.server.context import ControllerContext
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)


def handle_describe_configs(
    ctx: ControllerContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    return described_configs(ctx.node, request)
