"""Groups: listing, describing, deleting them, and their committed offsets. Classic groups and those
of the consumer protocol (KIP-848) look the same here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.node_connection import VersionRange
from moldau.client.errors import check
from moldau.core.consumer.consumer_protocol import read_assignment
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from moldau.protocol.messages.consumer_group_describe import DescribedGroup as DescribedNewGroup
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.protocol.versions import (
    OFFSET_COMMIT_TOPIC_IDS,
    OFFSET_FETCH_GROUPS,
    OFFSET_FETCH_TOPIC_IDS,
)
from moldau.types import NO_EPOCH, NO_OFFSET, TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"
STATE_EMPTY = "Empty"
STATE_DEAD = "Dead"
# From version 10 on, topics are identified by ids, so the offsets of a deleted topic would have no
# name.
_FETCH_NAMES_VERSION_MAX = OFFSET_FETCH_TOPIC_IDS - 1
# The first version that can request all offsets of the group.
_FETCH_ALL_VERSION = 2
_COMMIT_NAMES_VERSION_MAX = OFFSET_COMMIT_TOPIC_IDS - 1
# The first versions that carry these filters.
_STATES_VERSION = 4
_KINDS_VERSION = 5


class ListedGroup(NamedTuple):
    """A group in the result of `Admin.list_groups`."""

    group_id: str
    state: str
    kind: str
    """Classic, Consumer, …; empty if the broker is too old to report it."""
    protocol_type: str
    coordinator: int
    """The id of the broker that coordinates the group."""


class Member(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    """The partitions that it has now."""
    target: tuple[TopicPartition, ...] | None
    """The partitions that it will have; None in classic groups."""
    epoch: int | None
    """None in classic groups."""


class Group(NamedTuple):
    """A group in the result of `Admin.describe_groups`."""

    group_id: str
    state: str
    kind: str
    """Classic or Consumer."""
    assignor: str
    coordinator: int
    members: tuple[Member, ...]
    epoch: int | None = None
    """None in classic groups; likewise `target_epoch`, the epoch of the target assignment."""
    target_epoch: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it has members, or is about to have some."""
        return self.state not in {STATE_EMPTY, STATE_DEAD}


class Committed(NamedTuple):
    """The committed offset of a partition: that of the next record to read."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


async def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), kinds: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of all brokers in these states and of these kinds, sorted by id."""
    found: dict[str, ListedGroup] = {}
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
    oldest = _KINDS_VERSION if kinds else _STATES_VERSION if states else 0
    for node_id in await cluster.brokers():

        async def attempt(node_id: int = node_id) -> ListGroupsResponse:
            answer = await cluster.send(node_id, request, ListGroupsResponse, oldest=oldest)
            check(answer.error_code, f"listing the groups of broker {node_id}")
            return answer

        for row in (await cluster.with_retries(attempt)).groups:
            # On the wire it is lower case; Kafka's tools, and descriptions here, say Classic.
            kind = row.group_type.capitalize()
            found[row.group_id] = ListedGroup(
                row.group_id, row.group_state, kind, row.protocol_type, node_id
            )
    return sorted(found.values())


async def describe_group(cluster: Cluster, group_id: str) -> Group | None:
    """None if the group does not exist."""

    async def attempt() -> Group | None:
        node_id = await cluster.coordinator(group_id)
        connection = await cluster.connection(node_id)
        if connection.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            answer = await connection.send(request, ConsumerGroupDescribeResponse)
            (described,) = answer.groups
            if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(described.error_code, described.error_message)
                return _new_group(described, node_id)
        classic = await connection.send(
            DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse
        )
        (found,) = classic.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check(found.error_code, found.error_message)
        return None if found.group_state == STATE_DEAD else _classic_group(found, node_id)

    return await cluster.with_retries(attempt)


def _classic_group(group: DescribedGroup, coordinator: int) -> Group:
    is_consumer = group.protocol_type in {CONSUMER_PROTOCOL_TYPE, ""}
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            tuple(sorted(read_assignment(member.member_assignment))) if is_consumer else (),
            None,
            None,
        )
        for member in group.members
    ]
    return Group(
        group.group_id,
        group.group_state,
        "Classic",
        group.protocol_data,
        coordinator,
        tuple(sorted(members)),
    )


def _new_group(group: DescribedNewGroup, coordinator: int) -> Group:
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
        )
        for member in group.members
    ]
    return Group(
        group.group_id,
        group.group_state,
        "Consumer",
        group.assignor_name,
        coordinator,
        tuple(sorted(members)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """All committed offsets of the group."""

    async def attempt() -> dict[TopicPartition, Committed]:
        connection = await cluster.connection(await cluster.coordinator(group_id))
        wanted = VersionRange(_FETCH_ALL_VERSION, _FETCH_NAMES_VERSION_MAX)
        if connection.version_of(ApiKey.OFFSET_FETCH, wanted) >= OFFSET_FETCH_GROUPS:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
            )
            answer = await connection.send(request, OffsetFetchResponse, wanted)
            (group,) = answer.groups
            return _committed(group_id, group.error_code, group.topics)
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        answer = await connection.send(request, OffsetFetchResponse, wanted)
        return _committed(group_id, answer.error_code, answer.topics)

    return await cluster.with_retries(attempt)


def _committed(
    group_id: str,
    error: int,
    topics: Sequence[OffsetFetchResponseTopics | OffsetFetchResponseTopic],
) -> dict[TopicPartition, Committed]:
    check(error, f"group '{group_id}'")
    found = {}
    for topic in topics:
        for row in topic.partitions:
            check(row.error_code, f"group '{group_id}', {topic.name}-{row.partition_index}")
            if row.committed_offset != NO_OFFSET:
                found[TopicPartition(topic.name, row.partition_index)] = Committed(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
    return dict(sorted(found.items()))


class CommitIdentity(NamedTuple):
    """The member that commits. By default none, which a group without members allows."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, Committed],
    identity: CommitIdentity | None = None,
) -> None:
    """Raises the first error that a partition got."""
    for error in (await commit_each(cluster, group_id, offsets, identity)).values():
        if error is not None:
            raise error


async def commit_each(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, Committed],
    identity: CommitIdentity | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """The error of each partition, or None; retriable errors are retried."""
    if not offsets:
        return {}
    committer = identity or CommitIdentity()
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, committed in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=committer.generation,
            member_id=committer.member_id,
            group_instance_id=committer.instance_id,
            topics=list(topics.values()),
        )
        answer = await cluster.send_to_coordinator(
            group_id, request, OffsetCommitResponse, newest=_COMMIT_NAMES_VERSION_MAX
        )
        done: dict[TopicPartition, KafkaError | None] = {}
        for result in answer.topics:
            for row in result.partitions:
                partition = TopicPartition(result.name, row.partition_index)
                where = f"group '{group_id}', {partition}"
                error = KafkaError(error_code(row.error_code), where) if row.error_code else None
                if error is not None and error.is_retriable:
                    raise error
                done[partition] = error
        return done

    return await cluster.with_retries(attempt)


async def delete_groups(
    cluster: Cluster, group_ids: Collection[str]
) -> dict[str, KafkaError | None]:
    async def attempt(group_id: str) -> KafkaError | None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = await cluster.send_to_coordinator(group_id, request, DeleteGroupsResponse)
        try:
            check(answer.results[0].error_code)
        except KafkaError as error:
            if error.code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP}:
                return error
            raise
        return None

    done: dict[str, KafkaError | None] = {}
    for group_id in group_ids:
        try:
            done[group_id] = await cluster.with_retries(partial(attempt, group_id))
        except KafkaError as error:
            done[group_id] = error
    return done


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Deletes committed offsets of topics that no member is subscribed to."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, OffsetDeleteRequestTopic(name=partition.topic))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition.partition))

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        answer = await cluster.send_to_coordinator(group_id, request, OffsetDeleteResponse)
        check(answer.error_code, f"group '{group_id}'")
        return {
            TopicPartition(result.name, row.partition_index): (
                KafkaError(error_code(row.error_code)) if row.error_code else None
            )
            for result in answer.topics
            for row in result.partitions
        }

    return await cluster.with_retries(attempt)
