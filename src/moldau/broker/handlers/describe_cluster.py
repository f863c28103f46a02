"""DescribeCluster on a broker's listener: the brokers and their endpoints there."""

from moldau.broker.cluster.cluster_view import (
    BROKERS,
    NO_CONTROLLER,
    ClusterView,
    authorized_operations,
    wrong_endpoint_type,
)
from moldau.broker.server.context import RequestContext
from moldau.protocol.enums import ResourceType
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle_describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return wrong_endpoint_type(request, ctx.version, expected=BROKERS)
    view = ClusterView(ctx.broker.image, ctx.peer.listener_name)
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            # Versions that cannot request fenced brokers cannot report them either.
            is_fenced=broker.is_fenced,
        )
        for broker, endpoint in view.brokers(with_fenced=request.include_fenced_brokers)
    ]
    controller = view.controller_id(ctx.broker.node_id)
    is_listed = any(broker.broker_id == controller for broker in brokers)
    response = DescribeClusterResponse(
        cluster_id=ctx.broker.cluster_id,
        controller_id=controller if is_listed else NO_CONTROLLER,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(ResourceType.CLUSTER)
    return response
