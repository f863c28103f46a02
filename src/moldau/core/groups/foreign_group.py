"""Groups of kinds that are not coordinated here: KIP-848 consumer groups, share groups, streams
groups. Only their kind, their record keys and their number of members are tracked.
"""

from enum import Enum
from typing import Any, cast

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.protocol.records.stored_records import encode_coordinator_key
from moldau.protocol.wire.schema import Message


class ForeignKind(Enum):
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


_KIND_OF_TYPE = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), ForeignKind.CONSUMER),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), ForeignKind.SHARE),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), ForeignKind.STREAMS),
}
"""The group's kind by the type of the record's key."""
_MEMBER_TYPES = frozenset({5, 10, 19})


class ForeignGroup:
    def __init__(self, group_id: str, kind: ForeignKind) -> None:
        self.group_id = group_id
        self.kind = kind
        self._keys: dict[bytes, Message] = {}
        self._member_count = 0

    @property
    def is_gone(self) -> bool:
        return not self._keys

    @property
    def member_count(self) -> int:
        return self._member_count

    @property
    def is_empty(self) -> bool:
        return self._member_count == 0

    @property
    def may_become_classic(self) -> bool:
        """As in Kafka, empty consumer and streams groups can be replaced."""
        return self.is_empty and self.kind is not ForeignKind.SHARE

    def replay(self, record: CoordinatorRecord) -> None:
        key = encode_coordinator_key(record.key)
        counts = record.key.API_KEY in _MEMBER_TYPES
        if record.value is None:
            self._member_count -= counts and key in self._keys
            self._keys.pop(key, None)
        else:
            self._member_count += counts and key not in self._keys
            self._keys[key] = record.key

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(key) for key in self._keys.values()]


def group_id_of(key: Message) -> str:
    group_id: str = cast("Any", key).group_id
    return group_id


def kind_of(key: Message) -> ForeignKind | None:
    return _KIND_OF_TYPE.get(key.API_KEY)
