"""The cluster as a whole: brokers and controller, and what each broker serves."""

from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import check
from moldau.net.request_channel import Address
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsResponse
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_FENCED_VERSION = 2


class DescribedBroker(NamedTuple):
    """A broker as the controller knows it."""

    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool
    """Whether it is registered but not serving; brokers before 4.0 never report such brokers."""


class DescribedCluster(NamedTuple):
    """The result of `Admin.describe_cluster`."""

    cluster_id: str
    controller_id: int
    brokers: list[DescribedBroker]


async def describe_cluster(cluster: Cluster) -> DescribedCluster:
    connection = await cluster.connection(None)
    if not connection.serves(ApiKey.DESCRIBE_CLUSTER):
        return await _described_by_metadata(cluster)
    newest = connection.newest_of(DescribeClusterRequest)
    request = DescribeClusterRequest(include_fenced_brokers=newest >= _FENCED_VERSION)
    answer = await connection.send(request, DescribeClusterResponse)
    check(answer.error_code, answer.error_message)
    brokers = [
        DescribedBroker(
            broker.broker_id, Address(broker.host, broker.port), broker.rack, broker.is_fenced
        )
        for broker in answer.brokers
    ]
    return DescribedCluster(answer.cluster_id, answer.controller_id, sorted(brokers))


async def _described_by_metadata(cluster: Cluster) -> DescribedCluster:
    """Describes the cluster from a Metadata response, for brokers before 2.8."""
    found = await cluster.metadata([])
    brokers = [
        DescribedBroker(broker.node_id, broker.address, broker.rack, is_fenced=False)
        for broker in found.brokers.values()
    ]
    return DescribedCluster(found.cluster_id or "", found.controller_id, sorted(brokers))


async def served_versions(cluster: Cluster, node_id: int | None = None) -> ApiVersionsResponse:
    """The answer of a broker to ApiVersions, with supported and finalized features."""
    return (await cluster.connection(node_id)).served


async def unregister_broker(cluster: Cluster, node_id: int) -> None:
    """Removes a broker that will not come back."""
    request = UnregisterBrokerRequest(broker_id=node_id)
    answer = await cluster.send(None, request, UnregisterBrokerResponse)
    check(answer.error_code, answer.error_message)
