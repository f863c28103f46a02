"""The committed offsets of a shard's groups, and the pending offsets of open transactions."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.types import NO_PRODUCER_ID, ZERO_UUID, LeaderEpoch, Offset, TopicPartition, Uuid

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int
    """NO_EXPIRY unless the client requested a retention time."""
    topic_id: Uuid
    record_offset: Offset
    """The offset of its record in the log."""


OffsetsByTopic: TypeAlias = dict[str, dict[int, CommittedOffset]]
_NOTHING: OffsetsByTopic = {}


class _GroupPartition(NamedTuple):
    group_id: str
    partition: TopicPartition


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, OffsetsByTopic] = {}
        self._pending: dict[int, dict[_GroupPartition, CommittedOffset]] = {}
        """Pending offsets by producer id."""
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        """Producers with pending offsets, by group and partition."""
        self._count = 0

    # Reading

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
        for group_id, by_topic in self._committed.items():
            for topic, offsets in by_topic.items():
                for partition, committed in offsets.items():
                    yield group_id, TopicPartition(topic, partition), committed

    def of_group(self, group_id: str) -> OffsetsByTopic:
        """The store's own map, which callers must not change."""
        return self._committed.get(group_id, _NOTHING)

    def pending_of_group(self, group_id: str) -> list[TopicPartition]:
        return list(self._open.get(group_id, ()))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self._open.get(group_id, ())

    def knows(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def of_topic(self, name: str, topic_id: Uuid) -> list[tuple[str, int]]:
        """Groups and partitions with committed or pending offsets of that topic, without those of
        another topic that has or had the same name.
        """
        committed = {
            (group_id, partition)
            for group_id, by_topic in self._committed.items()
            for partition, offset in by_topic.get(name, {}).items()
            if not differs(offset.topic_id, topic_id)
        }
        pending = {
            (key.group_id, key.partition.partition)
            for offsets in self._pending.values()
            for key, offset in offsets.items()
            if key.partition.topic == name and not differs(offset.topic_id, topic_id)
        }
        return sorted(committed | pending)

    # Replaying

    def replay(
        self,
        stored_key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: Offset,
        producer_id: int,
    ) -> None:
        partition = TopicPartition(stored_key.topic, stored_key.partition)
        key = _GroupPartition(stored_key.group, partition)
        if value is None:
            self._remove(key)
            return
        committed = CommittedOffset(
            Offset(value.offset),
            LeaderEpoch(value.leader_epoch),
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(key, committed)
        else:
            self._pending.setdefault(producer_id, {})[key] = committed
            open_here = self._open.setdefault(key.group_id, {})
            open_here.setdefault(key.partition, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        for key, committed in self._pending.pop(producer_id, {}).items():
            self._close(key, producer_id)
            topic, partition = key.partition
            known = self.of_group(key.group_id).get(topic, {}).get(partition)
            # Compaction keeps the last record of a key, so the last record must win here too.
            if commits and (known is None or known.record_offset < committed.record_offset):
                self._put(key, committed)

    def _put(self, key: _GroupPartition, committed: CommittedOffset) -> None:
        topic, partition = key.partition
        offsets = self._committed.setdefault(key.group_id, {}).setdefault(topic, {})
        self._count += partition not in offsets
        offsets[partition] = committed

    def _remove(self, key: _GroupPartition) -> None:
        topic, partition = key.partition
        by_topic = self._committed.get(key.group_id, _NOTHING)
        if by_topic.get(topic, {}).pop(partition, None) is not None:
            self._count -= 1
            if not by_topic[topic]:
                del by_topic[topic]
            if not by_topic:
                del self._committed[key.group_id]
        for producer_id in list(self._open.get(key.group_id, {}).get(key.partition, ())):
            self._pending[producer_id].pop(key, None)
            self._close(key, producer_id)

    def _close(self, key: _GroupPartition, producer_id: int) -> None:
        by_partition = self._open[key.group_id]
        by_partition[key.partition].discard(producer_id)
        if not by_partition[key.partition]:
            del by_partition[key.partition]
        if not by_partition:
            del self._open[key.group_id]


def differs(stored: Uuid, requested: Uuid) -> bool:
    """Whether both topics are known and are not the same."""
    return stored != requested and ZERO_UUID not in {stored, requested}
