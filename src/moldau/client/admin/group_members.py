"""Removing members from groups."""

from collections.abc import Collection
from typing import NamedTuple

from moldau.client.admin.groups import describe_group
from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError, check
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from moldau.protocol.versions import LEAVE_GROUP_MEMBERS

_REASON_MAX = 255


class Leaver(NamedTuple):
    """A member to remove from a group: a static one by instance id, any other by member id."""

    member_id: str = ""
    instance_id: str | None = None


async def remove_members(
    cluster: Cluster, group_id: str, members: Collection[Leaver] | None, reason: str = ""
) -> dict[Leaver, KafkaError | None]:
    """Removes members of a classic group; all of them if `members` is None."""
    if members is None:
        members = await _all_members(cluster, group_id)
    if not members:
        return {}
    text = f"removed by an admin: {reason or 'no reason given'}"[:_REASON_MAX]
    request = LeaveGroupRequest(
        group_id=group_id,
        members=[
            MemberIdentity(
                member_id=member.member_id, group_instance_id=member.instance_id, reason=text
            )
            for member in members
        ],
    )

    async def attempt() -> LeaveGroupResponse:
        answer = await cluster.send_to_coordinator(
            group_id, request, LeaveGroupResponse, oldest=LEAVE_GROUP_MEMBERS
        )
        check(answer.error_code, f"group '{group_id}'")
        return answer

    answer = await cluster.with_retries(attempt)
    if len(answer.members) != len(members):
        raise ClientError(f"the answer for group '{group_id}' lacks members")
    return {
        member: KafkaError(error_code(row.error_code)) if row.error_code else None
        for member, row in zip(members, answer.members, strict=True)
    }


async def _all_members(cluster: Cluster, group_id: str) -> list[Leaver]:
    group = await describe_group(cluster, group_id)
    if group is None:
        raise ClientError(f"group '{group_id}' does not exist")
    return [
        Leaver(instance_id=member.instance_id) if member.instance_id else Leaver(member.member_id)
        for member in group.members
    ]
