"""Errors that the user of a consumer may have to handle."""

from moldau.client.errors import ClientError
from moldau.types import TopicPartition


class WakeupError(ClientError):
    """`wakeup` was called while a poll waited, or before it."""


class NoOffsetError(ClientError):
    """A partition has no position to begin with, and auto.offset.reset=none forbids a default."""


class LogTruncationError(ClientError):
    """The log is shorter than what was read from it: a new leader lacks these records."""


class CommitFailedError(ClientError):
    """The group refused a commit, because this consumer is no longer a member or a rebalance is in
    progress. The records may be read again.
    """

    def __init__(self, detail: str, *, is_retriable: bool = False) -> None:
        super().__init__(detail)
        self.is_retriable = is_retriable


class DamagedRecordsError(ClientError):
    """The batch at the position is damaged: the broker cannot read it from its disk, or it arrived
    with a wrong checksum. The position stays before it: `seek` to an offset after it to continue.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        problem: str | None = None,
        next_offset: int | None = None,
    ) -> None:
        """`problem` describes the damage of a batch that arrived; it is None if the broker could
        not read the batch.
        """
        text = (
            f"{partition} is damaged at offset {offset} on the broker's disk; "
            f"`moldau topics describe {partition.topic}` shows the damaged offsets, "
            "seek to an offset after them to continue"
        )
        if problem is not None:
            after = "an offset after it" if next_offset is None else str(next_offset)
            text = (
                f"the batch at offset {offset} of {partition} arrived damaged ({problem}); "
                f"seek to {after} to skip it"
            )
        super().__init__(text)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class DeserializationError(ClientError):
    """A deserializer refused a key or a value. The position stays before the record: `seek` past it
    to continue.
    """

    def __init__(self, partition: TopicPartition, offset: int, cause: Exception) -> None:
        super().__init__(
            f"{partition} has a record at offset {offset} that cannot be read: {cause}; "
            f"seek to {offset + 1} to skip it"
        )
        self.partition = partition
        self.offset = offset
