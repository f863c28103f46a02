"""All groups of a shard by id. Only replaying adds or removes groups."""

from collections.abc import Iterator
from typing import TypeAlias

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.foreign_group import ForeignGroup, kind_of
from moldau.core.groups.group_records import read_group
from moldau.protocol.log_records.group_metadata import GroupMetadataKey, GroupMetadataValue

AnyGroup: TypeAlias = ClassicGroup | ForeignGroup


class GroupRegistry:
    def __init__(self) -> None:
        self._groups: dict[str, AnyGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(self._groups.values())

    def ids(self) -> list[str]:
        return list(self._groups)

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def classic_groups(self) -> Iterator[ClassicGroup]:
        return (group for group in self if isinstance(group, ClassicGroup))

    def replay_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._groups[key.group] = read_group(key, value)
        elif self.classic(key.group) is not None:
            del self._groups[key.group]

    def replay_foreign(self, record: CoordinatorRecord, group_id: str) -> None:
        kind = kind_of(record.key)
        if kind is None:
            return
        group = self._groups.get(group_id)
        if not isinstance(group, ForeignGroup) or group.kind is not kind:
            if record.value is None:
                return
            # The group before was converted to this kind, or only had offsets.
            group = self._groups[group_id] = ForeignGroup(group_id, kind)
        group.replay(record)
        if group.is_gone:
            del self._groups[group_id]

    def ensure_simple(self, group_id: str) -> None:
        """Offsets without a known group belong to a simple consumer: adds a group for them."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id)
