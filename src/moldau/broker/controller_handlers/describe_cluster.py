"""DescribeCluster on the controller's listener: the controllers and their endpoints there."""

from moldau.broker.cluster.cluster_view import (
    CONTROLLERS,
    NO_CONTROLLER,
    authorized_operations,
    wrong_endpoint_type,
)
from moldau.broker.server.context import ControllerContext
from moldau.protocol.enums import ResourceType
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle_describe_cluster(
    ctx: ControllerContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLERS:
        return wrong_endpoint_type(request, ctx.version, expected=CONTROLLERS)
    nodes = [
        DescribeClusterBroker(
            broker_id=controller.controller_id, host=endpoint.host, port=endpoint.port
        )
        for controller in ctx.node.image.controllers.values()
        if (endpoint := controller.endpoints.get(ctx.peer.listener_name)) is not None
    ]
    leader_id = ctx.controller.leader_id
    is_listed = any(node.broker_id == leader_id for node in nodes)
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=ctx.node.cluster_id,
        controller_id=leader_id if is_listed else NO_CONTROLLER,
        brokers=nodes,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(ResourceType.CLUSTER)
    return response
