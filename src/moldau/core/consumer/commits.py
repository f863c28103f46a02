"""Auto-commit: when positions are due, and which of them changed."""

from collections.abc import Collection, Mapping

from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.types import TopicPartition


class AutoCommit:
    """Commits the positions as of the start of a poll: the user has processed what came before."""

    def __init__(self, *, is_enabled: bool, interval_ms: int) -> None:
        self.is_enabled = is_enabled
        self._interval_ms = interval_ms
        self.due_ms = float("inf")
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def start(self, now_ms: float) -> None:
        """Called with the first assignment."""
        if self.is_enabled and self.due_ms == float("inf"):
            self.due_ms = now_ms + self._interval_ms

    def is_due(self, now_ms: float) -> bool:
        return now_ms >= self.due_ms

    def sent(self, now_ms: float) -> None:
        self.due_ms = now_ms + self._interval_ms

    def failed(self, now_ms: float, pause_ms: float) -> None:
        self.due_ms = min(self.due_ms, now_ms + pause_ms)

    def changed(
        self, consumed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            partition: position
            for partition, position in consumed.items()
            if self._committed.get(partition) != position
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update(offsets)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that were revoked: other members may commit them."""
        kept = set(partitions)
        self._committed = {each: at for each, at in self._committed.items() if each in kept}
