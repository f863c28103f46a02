"""The response to DescribeQuorum, from the quorum's status."""

from moldau.core.quorum.machine import QuorumStatus, ReplicaStatus
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from moldau.types import METADATA_PARTITION

_NODES_FROM = 2


def described_quorum(
    status: QuorumStatus, request: DescribeQuorumRequest, version: int, *, is_leader: bool = True
) -> DescribeQuorumResponse:
    """Only the leader knows how far the replicas are."""
    requested = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if requested != [METADATA_PARTITION]:
        return _unknown_partitions(request)
    if not is_leader:
        return _refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition = DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=[_state(replica, version) for replica in status.voters],
        observers=[_state(replica, version) for replica in status.observers],
    )
    topic = DescribeQuorumResponseTopicData(
        topic_name=METADATA_PARTITION.topic, partitions=[partition]
    )
    return DescribeQuorumResponse(
        topics=[topic],
        nodes=_nodes(status) if version >= _NODES_FROM else [],
    )


def _refused(code: ErrorCode) -> DescribeQuorumResponse:
    refused = DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION.partition, error_code=code
    )
    topic = DescribeQuorumResponseTopicData(
        topic_name=METADATA_PARTITION.topic, partitions=[refused]
    )
    return DescribeQuorumResponse(topics=[topic])


def _state(replica: ReplicaStatus, version: int) -> ReplicaState:
    state = ReplicaState(
        replica_id=replica.key.node_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
    if version >= _NODES_FROM:
        state.replica_directory_id = replica.key.directory_id
    return state


def _nodes(status: QuorumStatus) -> list[Node]:
    return [
        Node(
            node_id=voter.key.node_id,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port)
                for each in voter.endpoints
            ],
        )
        for voter in status.endpoints
    ]


def _unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
