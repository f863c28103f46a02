"""The cluster as a whole: brokers, controller, features, quorum, versions, log directories."""

from typing import NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.errors import check, error_code
from moldau.net.request_channel import Address
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsResponse
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
)
from moldau.types import TopicPartition

METADATA_TOPIC = "__cluster_metadata"
_FENCED_VERSION = 2


class DescribedBroker(NamedTuple):
    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool


class DescribedCluster(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: list[DescribedBroker]


class Replica(NamedTuple):
    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirectory(NamedTuple):
    node_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[Replica]


async def describe_cluster(cluster: Cluster) -> DescribedCluster:
    connection = await cluster.connection(None)
    newest = connection.newest_of(DescribeClusterRequest)
    request = DescribeClusterRequest(include_fenced_brokers=newest >= _FENCED_VERSION)
    answer = await connection.ask(request, DescribeClusterResponse)
    check(answer.error_code, answer.error_message)
    brokers = [
        DescribedBroker(one.broker_id, Address(one.host, one.port), one.rack, one.is_fenced)
        for one in answer.brokers
    ]
    return DescribedCluster(answer.cluster_id, answer.controller_id, sorted(brokers))


async def served_versions(cluster: Cluster, node_id: int | None = None) -> ApiVersionsResponse:
    """With the features, supported and finalized."""
    return (await cluster.connection(node_id)).served


async def describe_quorum(
    cluster: Cluster,
) -> tuple[DescribeQuorumResponsePartitionData, DescribeQuorumResponse]:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = await cluster.ask(None, DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    check(answer.error_code, answer.error_message)
    found = answer.topics[0].partitions[0]
    check(found.error_code, found.error_message)
    return found, answer


async def describe_log_dirs(cluster: Cluster, node_ids: list[int]) -> list[LogDirectory]:
    found = []
    for node_id in node_ids:
        request = DescribeLogDirsRequest(topics=None)
        answer = await cluster.ask(node_id, request, DescribeLogDirsResponse)
        check(answer.error_code)
        for directory in answer.results:
            replicas = [
                Replica(
                    TopicPartition(topic.name, row.partition_index),
                    row.partition_size,
                    row.offset_lag,
                    row.is_future_key,
                )
                for topic in directory.topics
                for row in topic.partitions
            ]
            found.append(
                LogDirectory(
                    node_id,
                    directory.log_dir,
                    error_code(directory.error_code),
                    directory.total_bytes,
                    directory.usable_bytes,
                    sorted(replicas),
                )
            )
    return found
