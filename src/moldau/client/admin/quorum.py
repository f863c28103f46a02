"""The controllers' quorum: its leader, its voters, and how far each has replicated."""

from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError, check
from moldau.net.request_channel import Address
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from moldau.types import Uuid

METADATA_TOPIC = "__cluster_metadata"


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata quorum. Times are in milliseconds since 1970."""

    node_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    """-1 if it is unknown; likewise `last_caught_up_ms`."""
    last_caught_up_ms: int


class QuorumListener(NamedTuple):
    """A listener of a voter."""

    name: str
    address: Address


class DescribedQuorum(NamedTuple):
    """The result of `Admin.describe_quorum`."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: dict[int, tuple[QuorumListener, ...]]
    """The listeners of the voters, by node; empty if the broker is older than 3.9."""


async def describe_quorum(cluster: Cluster) -> DescribedQuorum:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = await cluster.send(None, DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    check(answer.error_code, answer.error_message)
    rows = [row for topic in answer.topics for row in topic.partitions]
    if len(rows) != 1:
        raise ClientError("the broker did not describe the quorum")
    (found,) = rows
    check(found.error_code, found.error_message)
    listeners = {
        node.node_id: tuple(
            QuorumListener(listener.name, Address(listener.host, listener.port))
            for listener in node.listeners
        )
        for node in answer.nodes
    }
    return DescribedQuorum(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(map(_replica, found.current_voters)),
        tuple(map(_replica, found.observers)),
        listeners,
    )


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
