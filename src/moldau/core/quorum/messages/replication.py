"""Fetch and FetchSnapshot. Responses are written without copying their records."""

from typing import TYPE_CHECKING

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import (
    Receiver,
    Sender,
    check_answered,
    leader_nodes,
    leadership_of,
    other_partition,
)
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages import fetch
from moldau.protocol.messages import fetch_snapshot as snapshots
from moldau.types import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    NO_LEADER,
    BrokerId,
    LeaderEpoch,
    Offset,
)

if TYPE_CHECKING:
    from moldau.protocol.wire.schema import Records

_TOPIC, _PARTITION = METADATA_PARTITION
_REPLICA_STATE_SINCE_VERSION = 15
_FETCH_ENDPOINTS_SINCE_VERSION = 17
_SNAPSHOT_ENDPOINTS_SINCE_VERSION = 1


# Fetch


def fetch_request(request: rpc.FetchRequest, version: int, sender: Sender) -> fetch.FetchRequest:
    replica = request.replica
    partition = fetch.FetchPartition(
        partition=_PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.position.offset,
        last_fetched_epoch=request.position.epoch,
        replica_directory_id=replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = fetch.FetchTopic(topic=_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    message = fetch.FetchRequest(
        cluster_id=sender.cluster_id,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[topic],
    )
    if version >= _REPLICA_STATE_SINCE_VERSION:
        message.replica_state = fetch.ReplicaState(replica_id=replica.node_id)
    else:
        message.replica_id = replica.node_id
    return message


def read_fetch_request(
    message: fetch.FetchRequest, receiver: Receiver
) -> rpc.FetchRequest | fetch.FetchResponse:
    """Versions without topic ids are refused, as in Kafka: they cannot name the topic's id."""
    if not receiver.is_of(message.cluster_id):
        return fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = _requested(message)
    if partition is None:
        return fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    replica_id = message.replica_id
    if replica_id == NO_LEADER:
        replica_id = message.replica_state.replica_id
    return rpc.FetchRequest(
        replica=VoterKey(BrokerId(replica_id), partition.replica_directory_id),
        epoch=LeaderEpoch(partition.current_leader_epoch),
        position=LogPosition(
            LeaderEpoch(partition.last_fetched_epoch), Offset(partition.fetch_offset)
        ),
        high_watermark=partition.high_watermark,
        max_bytes=message.max_bytes,
        max_wait_ms=message.max_wait_ms,
    )


def _requested(message: fetch.FetchRequest) -> fetch.FetchPartition | None:
    if len(message.topics) != 1 or message.topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    partitions = message.topics[0].partitions
    if len(partitions) != 1 or partitions[0].partition != _PARTITION:
        return None
    return partitions[0]


def fetch_response(response: rpc.FetchResponse, version: int, listener: str) -> fetch.FetchResponse:
    leadership = response.leadership
    partition = fetch.PartitionData(
        partition_index=_PARTITION,
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=leadership.leader_id, leader_epoch=leadership.epoch
        ),
        records=response.records,
    )
    if response.diverging is not None:
        epoch, offset = response.diverging
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=offset)
    if response.snapshot is not None:
        epoch, offset = response.snapshot
        partition.snapshot_id = fetch.SnapshotId(epoch=epoch, end_offset=offset)
    topic = fetch.FetchableTopicResponse(
        topic=_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    message = fetch.FetchResponse(responses=[topic])
    if version >= _FETCH_ENDPOINTS_SINCE_VERSION:
        message.node_endpoints = leader_nodes(leadership, listener, fetch.NodeEndpoint)
    return message


def read_fetch_response(message: fetch.FetchResponse, listener: str) -> rpc.FetchResponse:
    check_answered(message.error_code)
    partition = _fetched(message)
    leader = partition.current_leader
    return rpc.FetchResponse(
        error=error_code(partition.error_code),
        leadership=leadership_of(
            leader.leader_epoch, leader.leader_id, message.node_endpoints, listener
        ),
        high_watermark=Offset(partition.high_watermark),
        log_start_offset=Offset(partition.log_start_offset),
        diverging=_diverging(partition.diverging_epoch),
        snapshot=_offered(partition.snapshot_id),
        records=_content(partition.records),
    )


def _fetched(message: fetch.FetchResponse) -> fetch.PartitionData:
    topics = message.responses
    if len(topics) == 1 and topics[0].topic_id == METADATA_TOPIC_ID:
        partitions = topics[0].partitions
        if len(partitions) == 1 and partitions[0].partition_index == _PARTITION:
            return partitions[0]
    raise other_partition()


def _diverging(found: fetch.EpochEndOffset) -> LogPosition | None:
    if found.epoch < 0:
        return None
    if found.end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"the logs are said to diverge at {found.end_offset}"
        )
    return LogPosition(LeaderEpoch(found.epoch), Offset(found.end_offset))


def _offered(found: fetch.SnapshotId) -> LogPosition | None:
    if found.epoch < 0 and found.end_offset < 0:
        return None
    return LogPosition(LeaderEpoch(found.epoch), Offset(found.end_offset))


def _content(records: "Records | None") -> bytes:
    if records is None:
        return b""
    if isinstance(records, bytes | bytearray | memoryview):
        return bytes(records)
    return b"".join(records)


# FetchSnapshot


def snapshot_request(
    request: rpc.FetchSnapshotRequest, sender: Sender
) -> snapshots.FetchSnapshotRequest:
    epoch, offset = request.snapshot
    partition = snapshots.FetchSnapshotRequestPartitionSnapshot(
        partition=_PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=snapshots.FetchSnapshotRequestSnapshotId(epoch=epoch, end_offset=offset),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    topic = snapshots.FetchSnapshotRequestTopicSnapshot(name=_TOPIC, partitions=[partition])
    return snapshots.FetchSnapshotRequest(
        cluster_id=sender.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=[topic],
    )


def read_snapshot_request(
    message: snapshots.FetchSnapshotRequest, version: int, receiver: Receiver
) -> rpc.FetchSnapshotRequest | snapshots.FetchSnapshotResponse:
    """Kafka serves a request with further partitions, too."""
    if not receiver.is_of(message.cluster_id):
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not message.topics or not message.topics[0].partitions:
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    if len(message.topics) > 1 and len(message.topics[0].partitions) > 1:
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    for topic in message.topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition) == METADATA_PARTITION:
                return _read_snapshot_request(message, partition)
    return _unknown_partition(message.topics[0], version, receiver)


def _read_snapshot_request(
    message: snapshots.FetchSnapshotRequest,
    partition: snapshots.FetchSnapshotRequestPartitionSnapshot,
) -> rpc.FetchSnapshotRequest:
    wanted = partition.snapshot_id
    return rpc.FetchSnapshotRequest(
        replica=VoterKey(BrokerId(message.replica_id), partition.replica_directory_id),
        epoch=LeaderEpoch(partition.current_leader_epoch),
        snapshot=LogPosition(LeaderEpoch(wanted.epoch), Offset(wanted.end_offset)),
        position=partition.position,
        max_bytes=message.max_bytes,
    )


def _unknown_partition(
    topic: snapshots.FetchSnapshotRequestTopicSnapshot, version: int, receiver: Receiver
) -> snapshots.FetchSnapshotResponse:
    refused = snapshots.FetchSnapshotResponsePartitionSnapshot(
        index=topic.partitions[0].partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return _snapshot_message(topic.name, refused, version, receiver.leadership, receiver.listener)


def snapshot_response(
    response: rpc.FetchSnapshotResponse, version: int, listener: str
) -> snapshots.FetchSnapshotResponse:
    leadership = response.leadership
    partition = snapshots.FetchSnapshotResponsePartitionSnapshot(
        index=_PARTITION,
        error_code=response.error,
        current_leader=snapshots.LeaderIdAndEpoch(
            leader_id=leadership.leader_id, leader_epoch=leadership.epoch
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.content,
    )
    if response.snapshot is not None:
        epoch, offset = response.snapshot
        partition.snapshot_id = snapshots.FetchSnapshotResponseSnapshotId(
            epoch=epoch, end_offset=offset
        )
    return _snapshot_message(_TOPIC, partition, version, leadership, listener)


def _snapshot_message(
    topic_name: str,
    partition: snapshots.FetchSnapshotResponsePartitionSnapshot,
    version: int,
    leadership: rpc.Leadership,
    listener: str,
) -> snapshots.FetchSnapshotResponse:
    topic = snapshots.FetchSnapshotResponseTopicSnapshot(name=topic_name, partitions=[partition])
    message = snapshots.FetchSnapshotResponse(topics=[topic])
    if version >= _SNAPSHOT_ENDPOINTS_SINCE_VERSION:
        message.node_endpoints = leader_nodes(leadership, listener, snapshots.NodeEndpoint)
    return message


def read_snapshot_response(
    message: snapshots.FetchSnapshotResponse, listener: str
) -> rpc.FetchSnapshotResponse:
    check_answered(message.error_code)
    partition = _fetched_snapshot(message)
    leader, found = partition.current_leader, partition.snapshot_id
    has_snapshot = found.epoch >= 0 and found.end_offset >= 0
    return rpc.FetchSnapshotResponse(
        error=error_code(partition.error_code),
        leadership=leadership_of(
            leader.leader_epoch, leader.leader_id, message.node_endpoints, listener
        ),
        snapshot=LogPosition(LeaderEpoch(found.epoch), Offset(found.end_offset))
        if has_snapshot
        else None,
        size=partition.size,
        position=partition.position,
        content=_content(partition.unaligned_records),
    )


def _fetched_snapshot(
    message: snapshots.FetchSnapshotResponse,
) -> snapshots.FetchSnapshotResponsePartitionSnapshot:
    for topic in message.topics:
        for partition in topic.partitions:
            if (topic.name, partition.index) == METADATA_PARTITION:
                return partition
    raise other_partition()
