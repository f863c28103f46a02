"""The committed offsets of a shard's groups, and those that wait for the end of a transaction."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.types import NO_PRODUCER_ID, ZERO_UUID, TopicPartition, Uuid

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    """NO_EXPIRY unless the client has asked for a time of its own."""
    topic_id: Uuid
    record_offset: int
    """Where in the log it is said."""


OffsetsByTopic: TypeAlias = dict[str, dict[int, CommittedOffset]]
_NOTHING: OffsetsByTopic = {}


class _Place(NamedTuple):
    group_id: str
    partition: TopicPartition


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, OffsetsByTopic] = {}
        self._pending: dict[int, dict[_Place, CommittedOffset]] = {}
        """By producer id."""
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        """Which producers have pending offsets, by group and partition."""
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
        """Not to be changed."""
        return self._committed.get(group_id, _NOTHING)

    def pending_of_group(self, group_id: str) -> list[TopicPartition]:
        return list(self._open.get(group_id, ()))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self._open.get(group_id, ())

    def knows(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def of_topic(self, name: str, topic_id: Uuid) -> list[tuple[str, int]]:
        """Groups and partitions for which that topic's offsets are kept, committed or pending.
        Those of another topic that had the name before or has it now are not among them.
        """
        committed = {
            (group_id, partition)
            for group_id, by_topic in self._committed.items()
            for partition, offset in by_topic.get(name, {}).items()
            if not differs(offset.topic_id, topic_id)
        }
        pending = {
            (place.group_id, place.partition.partition)
            for offsets in self._pending.values()
            for place, offset in offsets.items()
            if place.partition.topic == name and not differs(offset.topic_id, topic_id)
        }
        return sorted(committed | pending)

    # Replaying

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        place = _Place(key.group, TopicPartition(key.topic, key.partition))
        if value is None:
            self._remove(place)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(place, committed)
        else:
            self._pending.setdefault(producer_id, {})[place] = committed
            open_here = self._open.setdefault(place.group_id, {})
            open_here.setdefault(place.partition, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        for place, committed in self._pending.pop(producer_id, {}).items():
            self._close(place, producer_id)
            topic, partition = place.partition
            known = self.of_group(place.group_id).get(topic, {}).get(partition)
            # Compaction keeps the last record, so the last record must be the one that counts.
            if commits and (known is None or known.record_offset < committed.record_offset):
                self._put(place, committed)

    def _put(self, place: _Place, committed: CommittedOffset) -> None:
        topic, partition = place.partition
        offsets = self._committed.setdefault(place.group_id, {}).setdefault(topic, {})
        self._count += partition not in offsets
        offsets[partition] = committed

    def _remove(self, place: _Place) -> None:
        topic, partition = place.partition
        by_topic = self._committed.get(place.group_id, _NOTHING)
        if by_topic.get(topic, {}).pop(partition, None) is not None:
            self._count -= 1
            if not by_topic[topic]:
                del by_topic[topic]
            if not by_topic:
                del self._committed[place.group_id]
        for producer_id in list(self._open.get(place.group_id, {}).get(place.partition, ())):
            self._pending[producer_id].pop(place, None)
            self._close(place, producer_id)

    def _close(self, place: _Place, producer_id: int) -> None:
        by_partition = self._open[place.group_id]
        by_partition[place.partition].discard(producer_id)
        if not by_partition[place.partition]:
            del by_partition[place.partition]
        if not by_partition:
            del self._open[place.group_id]


def differs(stored: Uuid, asked: Uuid) -> bool:
    """Whether both topics are known and are not the same."""
    return stored != asked and ZERO_UUID not in {stored, asked}
