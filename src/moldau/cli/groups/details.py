"""Gathers what `moldau groups describe` shows: members, assignments, and the lag of partitions."""

from typing import Any, NamedTuple

from moldau.client.admin.groups import Committed, Group, Member, committed_offsets, describe_group
from moldau.client.admin.offsets import LATEST, list_offsets
from moldau.client.cluster.cluster import Cluster
from moldau.types import NO_LEADER, TopicPartition


class GroupRow(NamedTuple):
    partition: TopicPartition
    committed: Committed | None
    log_end: int | None
    """None if the partition does not exist or has no leader."""
    member: Member | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return self.log_end - self.committed.offset


class GroupDetails(NamedTuple):
    group: Group
    rows: list[GroupRow]

    @property
    def total_lag(self) -> int:
        return sum(row.lag or 0 for row in self.rows)


async def group_details(cluster: Cluster, group_id: str) -> GroupDetails | None:
    """None if the group does not exist."""
    group = await describe_group(cluster, group_id)
    committed = await committed_offsets(cluster, group_id)
    if group is None:
        if not committed:
            return None
        coordinator = await cluster.coordinator(group_id)
        group = Group(group_id, "Empty", "Classic", "", coordinator, ())
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(set(owners) | set(committed))
    ends = await _log_ends(cluster, partitions)
    rows = [
        GroupRow(partition, committed.get(partition), ends.get(partition), owners.get(partition))
        for partition in partitions
    ]
    return GroupDetails(group, rows)


async def _log_ends(
    cluster: Cluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    topics = (await cluster.metadata({partition.topic for partition in partitions})).topics
    led = [
        TopicPartition(topic, number)
        for topic, number in partitions
        if topic in topics
        and number in topics[topic].partitions
        and topics[topic].partitions[number].leader != NO_LEADER
    ]
    ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    return {partition: end.offset for partition, end in ends.items()}


def details_json(details: GroupDetails) -> dict[str, Any]:
    group = details.group
    return {
        "groupId": group.group_id,
        "state": group.state,
        "type": group.kind,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "targetEpoch": group.target_epoch,
        "totalLag": details.total_lag,
        "members": [member_json(member) for member in group.members],
        "partitions": [_row_json(row) for row in details.rows],
    }


def member_json(member: Member) -> dict[str, Any]:
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "assignment": _assignment_json(member.assignment),
        "targetAssignment": None if member.target is None else _assignment_json(member.target),
    }


def _assignment_json(partitions: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


def _row_json(row: GroupRow) -> dict[str, Any]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "committed": None if row.committed is None else row.committed.offset,
        "leaderEpoch": None if row.committed is None else row.committed.leader_epoch,
        "metadata": None if row.committed is None else row.committed.metadata,
        "logEnd": row.log_end,
        "lag": row.lag,
        "memberId": row.member.member_id if row.member else None,
        "clientId": row.member.client_id if row.member else None,
        "host": row.member.host if row.member else None,
    }


def assignment_text(partitions: tuple[TopicPartition, ...]) -> str:
    """`orders:0,1 users:2`"""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())
