"""A group's committed offsets as an OffsetFetch response. Large responses are built in parts after
the request's turn, from a copy that later commits do not change.
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
"""The largest reading that is completed within the turn, in topics and partitions."""


class OffsetReading:
    """`response` is complete after every part of `parts()` was passed to `add`."""

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
        """The number of partitions, plus topics, which may have no partitions."""
        topics = self._request.topics
        if topics is None:
            return len(self._committed) + sum(map(len, self._committed.values()))
        return len(topics) + sum(len(topic.partition_indexes) for topic in topics)

    def read_all(self) -> None:
        for part in self.parts():
            self.add(part)
        self.is_complete = True

    def detach(self) -> None:
        """Copies the offsets, so that later commits do not change the reading."""
        committed, topics = self._committed, self._request.topics
        if topics is not None and len(topics) < len(committed):
            names = {topic.name for topic in topics}
            committed = {name: committed[name] for name in names if name in committed}
        self._committed = {name: dict(offsets) for name, offsets in committed.items()}

    def parts(self) -> Iterator[tuple[OffsetFetchResponseTopics, int | None]]:
        """Each partition to read, with its topic's entry in the response. A topic without
        partitions is a part with None, as there may be thousands.
        """
        if self._request.topics is None:
            for name, offsets in self._committed.items():
                topic = OffsetFetchResponseTopics(name=name, partitions=[])
                self.response.topics.append(topic)
                yield from ((topic, index) for index in offsets)
            return
        for requested in self._request.topics:
            topic = OffsetFetchResponseTopics(
                name=requested.name, topic_id=requested.topic_id, partitions=[]
            )
            self.response.topics.append(topic)
            yield from ((topic, index) for index in requested.partition_indexes or (None,))

    def add(self, part: tuple[OffsetFetchResponseTopics, int | None]) -> None:
        topic, index = part
        if index is None:
            return
        committed = self._committed.get(topic.name, {}).get(index)
        if committed is not None and differs(committed.topic_id, topic.topic_id):
            committed = None
        is_pending = TopicPartition(topic.name, index) in self._pending
        topic.partitions.append(_fetched(index, committed, is_pending=is_pending))


def _fetched(
    index: int, committed: CommittedOffset | None, *, is_pending: bool
) -> OffsetFetchResponsePartitions:
    if is_pending:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
