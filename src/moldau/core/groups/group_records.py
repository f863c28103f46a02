"""Records of __consumer_offsets: writes those of classic groups and offsets in the versions of
Kafka 4.3, and reads all.
"""

from collections.abc import Collection, Mapping
from typing import Final

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.member import Member
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from moldau.protocol.log_records.legacy_offset_commit import LegacyOffsetCommitKey
from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.stored_records import (
    CoordinatorTopic,
    decode_coordinator_key,
    decode_coordinator_value,
)
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
"""The only version with an expiry timestamp."""

UNREAD: Final = Message()
"""Stands for the value of a foreign group's record, which stays in the log."""

_READ_TYPES = frozenset(
    {LegacyOffsetCommitKey.API_KEY, OffsetCommitKey.API_KEY, GroupMetadataKey.API_KEY}
)


def decode_group_record(key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
    """None for a record type of a later release: it may be left over from a downgrade."""
    try:
        decoded = decode_coordinator_key(CoordinatorTopic.GROUP, key)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    if value is None:
        return CoordinatorRecord(decoded)
    if decoded.API_KEY not in _READ_TYPES:
        return CoordinatorRecord(decoded, UNREAD)
    message, version = decode_coordinator_value(CoordinatorTopic.GROUP, decoded.API_KEY, value)
    return CoordinatorRecord(decoded, message, version)


def empty_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    value = GroupMetadataValue(
        protocol_type="", protocol=None, leader=None, current_state_timestamp=now_ms
    )
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def group_record(
    group: ClassicGroup,
    assignments: Mapping[str, bytes],
    *,
    members: Collection[Member] | None = None,
    leader_id: str | None = None,
) -> CoordinatorRecord:
    """`members` and `leader_id` replace the group's own if they are about to change."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=leader_id or group.leader_id,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in (group.members.values() if members is None else members)
        ],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def read_group(key: GroupMetadataKey, value: GroupMetadataValue) -> ClassicGroup:
    """The group as of its last assignment. The log only has each member's selected protocol."""
    instances = [m.group_instance_id for m in value.members if m.group_instance_id is not None]
    if (value.members and value.protocol is None) or len(set(instances)) < len(instances):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid record of group {key.group!r}")
    since_ms = value.current_state_timestamp
    group = ClassicGroup(key.group, None if since_ms == -1 else since_ms)
    group.generation = value.generation
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for stored in value.members:
        timeout_ms = stored.rebalance_timeout
        member = Member(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            principal=None,
            rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
            session_timeout_ms=stored.session_timeout,
            protocols=((value.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        group.add(member, value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.mark_loaded()
    return group


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id))


def offset_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue
) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    expires = value.expire_timestamp != -1
    version = OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION
    return CoordinatorRecord(key, value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
