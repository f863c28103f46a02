"""The cluster as a client sees it through one listener: which brokers have an endpoint there, which
replicas are out of reach, and what the client may do.
"""

from collections.abc import Iterator

from moldau.core.controller.situation import is_online
from moldau.core.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from moldau.protocol.enums import AclOperation, ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
NO_CONTROLLER = -1
NO_LEADER = -1

# Endpoint types of DescribeCluster.
BROKERS = 1
CONTROLLERS = 2
_ENDPOINTS = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def authorized_operations(kind: ResourceType) -> int:
    """As a set of bits. Without an authorizer everybody may do everything."""
    return sum(1 << operation for operation in _OPERATIONS[kind])


def brokers_of(image: MetadataImage, listener: str) -> Iterator[tuple[BrokerImage, Endpoint]]:
    """All that have an endpoint there, fenced ones too."""
    for broker in image.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            yield broker, endpoint


def controller_id(image: MetadataImage, node_id: int) -> int:
    """A broker that passes requests on to the controller, which clients do not talk to: this one,
    while it is alive.
    """
    alive = [broker_id for broker_id, broker in image.brokers.items() if not broker.is_fenced]
    if node_id in alive:
        return node_id
    return min(alive, default=NO_CONTROLLER)


def reachable_leader(image: MetadataImage, partition: PartitionImage, listener: str) -> int:
    broker = image.brokers.get(partition.leader)
    if broker is None or listener not in broker.endpoints:
        return NO_LEADER
    return partition.leader


def is_reachable(image: MetadataImage, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and listener in broker.endpoints


def offline_replicas(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    return [
        broker_id
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
        if not is_reachable(image, broker_id, listener)
        or not is_online(image.brokers[broker_id], directory)
    ]


def wrong_endpoint_type(
    request: DescribeClusterRequest, version: int, *, expected: int
) -> DescribeClusterResponse:
    """The client took a broker's listener for a controller's, or the other way round."""
    wanted = _ENDPOINTS.get(request.endpoint_type)
    if wanted is None:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        detail = f"Unsupported endpoint type {request.endpoint_type}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        detail = (
            f"The request was sent to an endpoint of type {_ENDPOINTS[expected]}, but we wanted an "
            f"endpoint of type {wanted}"
        )
    if version == 0:
        code = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=code, error_message=detail)
