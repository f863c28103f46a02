"""The cluster as a client sees it through one listener: which brokers have an endpoint there, which
replicas are out of reach, and what the client may do.
"""

from collections.abc import Iterable, Iterator

from moldau.core.controller.decision_context import is_online
from moldau.core.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from moldau.protocol.enums import AclOperation, ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.types import NO_LEADER, BrokerId, Uuid

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
NO_CONTROLLER = BrokerId(-1)

# Endpoint types of DescribeCluster.
BROKERS = 1
CONTROLLERS = 2
_ENDPOINTS = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def authorized_operations(kind: ResourceType) -> int:
    """The operations as a bit field. Without an authorizer every client may perform all of them."""
    return sum(1 << operation for operation in _OPERATIONS[kind])


class ClusterView:
    """One metadata image seen through one listener, for the duration of one request."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self.image = image
        self.endpoints = {
            broker_id: broker.endpoints[listener]
            for broker_id, broker in image.brokers.items()
            if listener in broker.endpoints
        }
        """The endpoints on this listener; fenced brokers are included."""
        self._directories = {
            broker_id: frozenset(image.brokers[broker_id].log_directories)
            for broker_id in self.endpoints
            if not image.brokers[broker_id].is_fenced
        }

    def brokers(self, *, with_fenced: bool = False) -> Iterator[tuple[BrokerImage, Endpoint]]:
        for broker_id, endpoint in self.endpoints.items():
            broker = self.image.brokers[broker_id]
            if with_fenced or not broker.is_fenced:
                yield broker, endpoint

    def controller_id(self, node_id: BrokerId) -> BrokerId:
        """A broker that forwards requests to the controller, because clients do not talk to the
        controller directly: this broker, while it is alive.
        """
        brokers = self.image.brokers.values()
        alive = [broker.broker_id for broker in brokers if not broker.is_fenced]
        return node_id if node_id in alive else min(alive, default=NO_CONTROLLER)

    def leader(self, partition: PartitionImage) -> BrokerId:
        return partition.leader if partition.leader in self.endpoints else NO_LEADER

    def reachable(self, broker_ids: Iterable[BrokerId]) -> list[int]:
        return [broker_id for broker_id in broker_ids if broker_id in self._directories]

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        return [
            broker_id
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if not self._is_online(broker_id, directory)
        ]

    def _is_online(self, broker_id: BrokerId, directory: Uuid) -> bool:
        directories = self._directories.get(broker_id)
        if directories is None:
            return False
        return directory in directories or is_online(self.image.brokers[broker_id], directory)


def wrong_endpoint_type(
    request: DescribeClusterRequest, version: int, *, expected: int
) -> DescribeClusterResponse:
    """The response to a client that expected a controller and reached a broker, or the reverse."""
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
