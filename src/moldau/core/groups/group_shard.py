"""The group coordinator's shard: the groups and offsets of one partition of __consumer_offsets."""

from collections import deque
from collections.abc import Callable, Iterable

from moldau.core.coordinator.effects import Append, TimerKey
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.decision import Decision
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.classic_protocol import ClassicProtocol, Sequel
from moldau.core.groups.foreign_group import ForeignKind, group_id_of
from moldau.core.groups.group_offsets import GroupOffsets
from moldau.core.groups.group_records import group_tombstone
from moldau.core.groups.offsets import OffsetStore
from moldau.core.groups.registry import AnyGroup, GroupRegistry
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.states import GroupState
from moldau.core.groups.turns import GroupTurn
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.log_records.group_metadata import GroupMetadataKey, GroupMetadataValue
from moldau.protocol.log_records.legacy_offset_commit import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
)
from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.messages.delete_groups import DeletableGroupResult
from moldau.types import NO_PRODUCER_ID, Offset, Uuid

EXPIRY_TIMER: TimerKey = ("expiry",)
EXPIRY_GROUPS_MAX = 50
"""Groups checked in one turn; the rest waits for the next."""
EXPIRY_SUBSCRIPTION_BYTES_MAX = 64 << 10
"""Likewise, but always one group."""


class GroupShard:
    def __init__(self, settings: Callable[[], GroupSettings]) -> None:
        self.registry = GroupRegistry()
        self.store = OffsetStore()
        self.classic = ClassicProtocol(self.registry, settings)
        self.offsets = GroupOffsets(self.registry, self.store, settings)
        self._settings = settings
        self._to_expire: deque[str] = deque()

    # Replaying

    def replay(
        self, record: CoordinatorRecord, offset: Offset, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        key, value = record.key, record.value
        match key:
            case OffsetCommitKey():
                assert value is None or isinstance(value, OffsetCommitValue)
                self._replay_offset(key, value, offset, producer_id)
            case LegacyOffsetCommitKey():
                assert value is None or isinstance(value, LegacyOffsetCommitValue)
                modern = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
                self._replay_offset(modern, _modern_value(value), offset, producer_id)
            case GroupMetadataKey():
                assert value is None or isinstance(value, GroupMetadataValue)
                self.registry.replay_classic(key, value)
            case _:
                self._replay_foreign(record, group_id_of(key))

    def _replay_foreign(self, record: CoordinatorRecord, group_id: str) -> None:
        self.registry.replay_foreign(record, group_id)
        if self.store.knows(group_id):
            # The group was deleted, but it still has offsets.
            self.registry.ensure_simple(group_id)

    def _replay_offset(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        offset: Offset,
        producer_id: int,
    ) -> None:
        if value is not None:
            self.registry.ensure_simple(key.group)
        self.store.replay(key, value, offset, producer_id)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        self.store.end_transaction(producer_id, commits=commits)

    # Events

    def loaded(self, turn: GroupTurn) -> None:
        self.classic.loaded(turn)
        turn.start_timer(EXPIRY_TIMER, self._settings().offsets_check_interval_ms)

    def unloaded(self, turn: GroupTurn) -> None:
        self.classic.unloaded(turn)

    def timer_fired(self, key: TimerKey, turn: GroupTurn) -> None:
        if key == EXPIRY_TIMER:
            self._expire(turn)
        else:
            self.classic.timer_fired(key, turn)

    def appended(self, sequel: Sequel, turn: GroupTurn) -> None:
        self.classic.appended(sequel, turn)

    def committed(self, sequel: Sequel, turn: GroupTurn) -> None:
        self.classic.committed(sequel, turn)

    def failed(self, sequel: Sequel, code: ErrorCode, turn: GroupTurn) -> None:
        self.classic.failed(sequel, code, turn)

    # Expiry and deletion

    def _expire(self, turn: GroupTurn) -> None:
        if not self._to_expire:
            self._to_expire = deque(self.registry.ids())
        tombstones: list[CoordinatorRecord] = []
        groups_left, bytes_left = EXPIRY_GROUPS_MAX, EXPIRY_SUBSCRIPTION_BYTES_MAX
        while self._to_expire and groups_left > 0 and bytes_left > 0:
            group = self.registry.get(self._to_expire.popleft())
            groups_left -= 1
            if group is not None:
                tombstones += self._expired(group, turn.now_ms)
                if isinstance(group, ClassicGroup):
                    bytes_left -= group.subscription_bytes
        if tombstones:
            turn.append(Append(records=tombstones, replays=True, is_atomic=False))
        interval_ms = self._settings().offsets_check_interval_ms
        turn.start_timer(EXPIRY_TIMER, 0 if self._to_expire else interval_ms)

    def _expired(self, group: AnyGroup, now_ms: int) -> list[CoordinatorRecord]:
        if not isinstance(group, ClassicGroup) and group.kind is ForeignKind.SHARE:
            return []
        tombstones, nothing_left = self.offsets.expired_of_group(group, now_ms)
        if nothing_left and _is_empty(group):
            tombstones += _group_tombstones(group)
        return tombstones

    def decide_topics_deleted(self, deleted: Iterable[tuple[str, Uuid]], turn: GroupTurn) -> None:
        tombstones = list(self.offsets.tombstones_of_topics(deleted))
        if tombstones:
            turn.append(Append(records=tombstones, replays=True, is_atomic=False))

    def decide_delete_groups(
        self, group_ids: Iterable[str]
    ) -> Decision[CoordinatorRecord, list[DeletableGroupResult]]:
        results: list[DeletableGroupResult] = []
        records: list[CoordinatorRecord] = []
        for group_id in group_ids:
            group = self.registry.get(group_id)
            code = _deletion_error(group)
            if group is not None and code is ErrorCode.NONE:
                records += self.offsets.tombstones_of_group(group_id)
                records += _group_tombstones(group)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        # Not one batch: groups can have very many offsets.
        return Decision(results, records, is_atomic=False)


def _modern_value(value: LegacyOffsetCommitValue | None) -> OffsetCommitValue | None:
    if value is None:
        return None
    return OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )


def _is_empty(group: AnyGroup) -> bool:
    if isinstance(group, ClassicGroup):
        # A client with a pending member id is about to join.
        return group.state is GroupState.EMPTY and not group.pending_members
    return group.is_empty


def _deletion_error(group: AnyGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup):
        is_empty = group.state is GroupState.EMPTY
        return ErrorCode.NONE if is_empty else ErrorCode.NON_EMPTY_GROUP
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    if group.kind is ForeignKind.SHARE:
        # Its state is in another topic, where it cannot be deleted yet.
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _group_tombstones(group: AnyGroup) -> list[CoordinatorRecord]:
    if isinstance(group, ClassicGroup):
        return [group_tombstone(group.group_id)]
    return group.tombstones()
