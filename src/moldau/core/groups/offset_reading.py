"""What a group has committed, as an answer to OffsetFetch. Large answers are built outside of the
turn that asks, piece by piece: so they are built from a copy, which later commits do not change.
"""

from collections.abc import Container, Iterator

from moldau.core.groups.offsets import CommittedOffset, OffsetsByTopic, OffsetStore, differs
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.types import NO_OFFSET, TopicPartition

AT_ONCE_MAX = 1_000
"""Partitions that are read within a turn."""


class OffsetReading:
    """Add the partitions of `parts()` with `add`, then `response` is complete."""

    def __init__(
        self, store: OffsetStore, request: OffsetFetchRequestGroup, *, requires_stable: bool
    ) -> None:
        group_id = request.group_id
        self.response = OffsetFetchResponseGroup(group_id=group_id)
        self.is_complete = False
        self._request = request
        self._committed: OffsetsByTopic = store.of_group(group_id)
        self._pending: Container[TopicPartition] = ()
        if requires_stable:
            self._pending = frozenset(store.pending_of_group(group_id))

    @property
    def size(self) -> int:
        """Of topics, which may be without partitions, and partitions."""
        topics = self._request.topics
        if topics is None:
            return len(self._committed) + sum(map(len, self._committed.values()))
        return len(topics) + sum(len(topic.partition_indexes) for topic in topics)

    def read_all(self) -> None:
        for part in self.parts():
            self.add(part)
        self.is_complete = True

    def detach(self) -> None:
        """From here on it is a copy: what is committed later is not seen."""
        committed, topics = self._committed, self._request.topics
        if topics is not None and len(topics) < len(committed):
            names = {topic.name for topic in topics}
            committed = {name: committed[name] for name in names if name in committed}
        self._committed = {name: dict(offsets) for name, offsets in committed.items()}

    def parts(self) -> Iterator[tuple[OffsetFetchResponseTopics, int | None]]:
        """Each partition to read, with its topic's place in the response; also a topic without any,
        as there may be thousands.
        """
        if self._request.topics is None:
            for name, offsets in self._committed.items():
                topic = OffsetFetchResponseTopics(name=name, partitions=[])
                self.response.topics.append(topic)
                yield from ((topic, index) for index in offsets)
            return
        for asked in self._request.topics:
            topic = OffsetFetchResponseTopics(
                name=asked.name, topic_id=asked.topic_id, partitions=[]
            )
            self.response.topics.append(topic)
            yield from ((topic, index) for index in asked.partition_indexes or (None,))

    def add(self, part: tuple[OffsetFetchResponseTopics, int | None]) -> None:
        topic, index = part
        if index is None:
            return
        found = self._committed.get(topic.name, {}).get(index)
        if found is not None and differs(found.topic_id, topic.topic_id):
            found = None
        is_pending = TopicPartition(topic.name, index) in self._pending
        topic.partitions.append(_fetched(index, found, is_pending=is_pending))


def _fetched(
    index: int, found: CommittedOffset | None, *, is_pending: bool
) -> OffsetFetchResponsePartitions:
    if is_pending:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    if found is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )
