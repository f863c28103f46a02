"""DescribeConfigs on a broker's listener."""

from collections.abc import Awaitable

from moldau.broker.cluster.config_descriptions import described_configs
from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)


def handle_describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    return described_configs(ctx.broker, request)
