"""Committed offsets of a group: looking them up, and committing as a member."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.consumer.errors import CommitFailedError
from moldau.client.errors import check
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.protocol.versions import (
    OFFSET_COMMIT_TOPIC_IDS,
    OFFSET_FETCH_GROUPS,
    OFFSET_FETCH_TOPIC_IDS,
)
from moldau.types import NO_OFFSET, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_NOT_A_MEMBER = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group. Without a generation it is not a member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class CommitRefusedError(KafkaError):
    """The coordinator does not know the member that committed, or no longer knows it."""


async def commit(cluster: Cluster, identity: GroupMetadata, offsets: Offsets) -> None:
    """One attempt. Raises KafkaError, ChannelError or CommitFailedError."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, number), at in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=list(topics.values()),
    )
    answer = await cluster.send_to_coordinator(
        identity.group_id, request, OffsetCommitResponse, newest=OFFSET_COMMIT_TOPIC_IDS - 1
    )
    for result in answer.topics:
        for row in result.partitions:
            if row.error_code:
                where = f"group '{identity.group_id}', {result.name}-{row.partition_index}"
                _refuse(error_code(row.error_code), where)


def _refuse(code: ErrorCode, where: str) -> None:
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        raise CommitFailedError(
            f"{where}: the group is rebalancing; poll until that is over, then commit what "
            "is still assigned",
            is_retriable=True,
        )
    if code in _NOT_A_MEMBER:
        raise CommitRefusedError(code, where)
    raise KafkaError(code, where)


def too_late(error: CommitRefusedError) -> CommitFailedError:
    return CommitFailedError(
        f"{error.detail}: the group has reassigned these partitions ({error.code.name}); poll "
        "more often, or raise max.poll.interval.ms or lower max.poll.records"
    )


def not_a_member(group_id: str) -> CommitFailedError:
    return CommitFailedError(
        f"group '{group_id}': this consumer is not a member now, others may have its partitions; "
        "poll to join, and poll more often or raise max.poll.interval.ms or lower max.poll.records "
        "to stay"
    )


async def committed(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    is_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """One attempt; partitions without a committed offset are left out. `is_stable`: fails
    with a retriable error while a transaction is about to commit offsets.
    """
    by_topic: dict[str, list[int]] = {}
    for name, number in partitions:
        by_topic.setdefault(name, []).append(number)
    node_id = await cluster.coordinator(group_id)
    connection = await cluster.connection(node_id)
    if connection.newest_of(OffsetFetchRequest) < OFFSET_FETCH_GROUPS:
        return await _committed_of_one(cluster, group_id, by_topic)
    # Brokers with this version know require_stable.
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic.items()
                ],
            )
        ],
        require_stable=is_stable,
    )
    answer = await cluster.send(
        node_id,
        request,
        OffsetFetchResponse,
        oldest=OFFSET_FETCH_GROUPS,
        newest=OFFSET_FETCH_TOPIC_IDS - 1,
    )
    (group,) = answer.groups
    check(group.error_code, f"group '{group_id}'")
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            check(row.error_code, f"group '{group_id}', {topic.name}-{row.partition_index}")
            found[TopicPartition(topic.name, row.partition_index)] = OffsetAndMetadata(
                row.committed_offset, row.metadata or "", row.committed_leader_epoch
            )
    return {partition: at for partition, at in found.items() if at.offset != NO_OFFSET}


async def _committed_of_one(
    cluster: Cluster, group_id: str, by_topic: Mapping[str, list[int]]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """For brokers before 3.0: one group in a request. Those before 2.5 ignore require_stable."""
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in by_topic.items()
        ],
    )
    answer = await cluster.send_to_coordinator(
        group_id, request, OffsetFetchResponse, newest=OFFSET_FETCH_GROUPS - 1
    )
    check(answer.error_code, f"group '{group_id}'")
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            check(row.error_code, f"group '{group_id}', {topic.name}-{row.partition_index}")
            if row.committed_offset != NO_OFFSET:
                found[TopicPartition(topic.name, row.partition_index)] = OffsetAndMetadata(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return found
