"""A consumer's positions. `fetch_offset` advances with received records, `position` with records
that were handed out. A seek or a new assignment changes `version`, so that responses to older
requests are discarded.
"""

from collections.abc import Collection, Iterable, Iterator

from moldau.core.consumer.resets import ResetPolicy
from moldau.frozen import frozen
from moldau.types import NO_EPOCH, NO_NODE, NO_OFFSET, BrokerId, TopicPartition, Uuid


@frozen
class OffsetAndMetadata:
    """A committed offset: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    """A text that the user stores with the offset."""
    leader_epoch: int = NO_EPOCH
    """The leader epoch of the last record that was read; -1 if it is unknown."""


class PartitionState:
    __slots__ = (
        "_arrived_bytes",
        "_taken_bytes",
        "end_offset",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_paused",
        "leader_epoch",
        "log_start_offset",
        "must_validate",
        "not_before_ms",
        "partition",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until_ms",
        "reset",
        "topic_id",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        """The next offset to be handed out; None until it is known."""
        self.position_epoch: int = NO_EPOCH
        self.fetch_offset = 0
        self.fetch_epoch: int = NO_EPOCH
        """The epoch of the batch before `fetch_offset`, to check that a new leader has the same
        log.
        """
        self.leader_epoch: int = NO_EPOCH
        self.topic_id: Uuid | None = None
        self.version = 0
        self.is_paused = False
        self.reset: ResetPolicy | None = None
        """How to find a position, if it must be reset."""
        self.must_validate = False
        self.not_before_ms = 0.0
        """No request is sent before this time, after an error that persists."""
        self.high_watermark: int = NO_OFFSET
        self.end_offset: int = NO_OFFSET
        """The end for this consumer: in read_committed, the last stable offset."""
        self.log_start_offset: int = NO_OFFSET
        self.preferred_replica = NO_NODE
        self.preferred_until_ms = 0.0
        # Each is written by one thread only, so no lock is needed.
        self._arrived_bytes = 0
        self._taken_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        return self._arrived_bytes - self._taken_bytes

    def arrived(self, size_bytes: int) -> None:
        self._arrived_bytes += size_bytes

    def taken(self, size_bytes: int) -> None:
        self._taken_bytes += size_bytes

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        self.version += 1
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch
        self.reset = None
        self.must_validate = epoch != NO_EPOCH
        self.preferred_replica = NO_NODE

    def rewind(self) -> None:
        """Discards records that were fetched and not handed out."""
        assert self.position is not None
        self.version += 1
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch

    def request_reset(self, policy: ResetPolicy) -> None:
        self.version += 1
        self.position = None
        self.reset = policy
        self.must_validate = False

    @property
    def can_fetch(self) -> bool:
        return self.position is not None and not self.is_paused and not self.must_validate

    @property
    def lag(self) -> int | None:
        """Records between the position and the end, as of the last fetch."""
        if self.position is None or self.end_offset == NO_OFFSET:
            return None
        return max(self.end_offset - self.position, 0)

    def leader_changed(self, epoch: int, topic_id: Uuid) -> None:
        """A new leader: the position must be validated against its log first (KIP-320)."""
        if topic_id != self.topic_id:
            # A topic that was created again starts with new epochs.
            if self.topic_id is not None:
                self.leader_epoch = self.fetch_epoch = self.position_epoch = NO_EPOCH
                self.must_validate = False
            self.topic_id = topic_id
        if epoch > self.leader_epoch:
            self.must_validate |= self.leader_epoch != NO_EPOCH and self.fetch_epoch != NO_EPOCH
            self.leader_epoch = epoch

    def replica_to_read(self, leader: BrokerId, now_ms: float) -> BrokerId:
        """The preferred read replica while it is valid (KIP-392), else the leader."""
        if self.preferred_replica != NO_NODE and now_ms < self.preferred_until_ms:
            return self.preferred_replica
        return leader


class Positions:
    """The positions of all assigned partitions."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._states.values()))

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __len__(self) -> int:
        return len(self._states)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._states)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Keeps the state of partitions that stay, and returns the new ones."""
        assigned = dict.fromkeys(partitions)
        self.remove([each for each in self._states if each not in assigned])
        added = [each for each in assigned if each not in self._states]
        for partition in added:
            self._states[partition] = PartitionState(partition)
        return [self._states[partition] for partition in added]

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.version += 1

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions to commit."""
        return {
            state.partition: OffsetAndMetadata(state.position, "", state.position_epoch)
            for state in self._states.values()
            if state.position is not None
        }
