"""Groups for administrators: ListGroups, DescribeGroups, and counts for metrics."""

from collections import Counter
from collections.abc import Collection

from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.foreign_group import ForeignGroup
from moldau.core.groups.registry import AnyGroup, GroupRegistry
from moldau.core.groups.states import GroupState
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.protocol.messages.list_groups import ListedGroup

CLASSIC = "classic"
UNKNOWN = "Unknown"
GROUP_ID_NOT_FOUND_FROM = 6
"""The first DescribeGroups version that reports a missing group as an error."""


class GroupFilter:
    """Case-insensitive. An empty filter matches everything."""

    def __init__(self, states: Collection[str], types: Collection[str]) -> None:
        self._states = {state.strip().lower() for state in states}
        self._types = {kind.strip().lower() for kind in types}

    def listed(self, group: AnyGroup) -> ListedGroup | None:
        """None if the group does not match the filter."""
        listed = _listed(group)
        if self._states and listed.group_state.lower() not in self._states:
            return None
        if self._types and listed.group_type not in self._types:
            return None
        return listed


def _listed(group: AnyGroup) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.kind.value,
        group_state=_state_of(group),
        group_type=group.kind.value,
    )


def _state_of(group: ForeignGroup) -> str:
    # Its members cannot reach a coordinator here, so the state of a group with members is unknown.
    return GroupState.EMPTY.value if group.is_empty else UNKNOWN


def describe_group(registry: GroupRegistry, group_id: str, version: int) -> DescribedGroup:
    group = registry.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= GROUP_ID_NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            problem = "not found" if group is None else "is not a classic group"
            described.error_message = f"Group {group_id} {problem}."
        return described
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # The selected protocol is known only in a stable group.
                member_metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def count_groups(registry: GroupRegistry) -> Counter[str]:
    """Counts by state."""
    return Counter(listed.group_state for listed in map(_listed, registry))


def count_members(registry: GroupRegistry) -> int:
    return sum(
        len(group.members) if isinstance(group, ClassicGroup) else group.member_count
        for group in registry
    )
