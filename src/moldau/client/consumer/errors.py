"""What a consumer's user may have to act on."""

from moldau.client.errors import ClientError
from moldau.types import TopicPartition


class WakeupError(ClientError):
    """Somebody called `wakeup`."""


class NoOffsetError(ClientError):
    """There is no position to begin with, and auto.offset.reset=none wants none to be made up."""


class LogTruncationError(ClientError):
    """The log is shorter than what was read of it: a new leader does not have these records."""


class CommitFailedError(ClientError):
    """The group does not take this commit: it has moved on. What was read may be read again."""

    def __init__(self, detail: str, *, is_retriable: bool = False) -> None:
        super().__init__(detail)
        self.is_retriable = is_retriable


class DamagedRecordsError(ClientError):
    """The batch at the position is damaged: the broker cannot read it from its disk, or it arrived
    with a wrong checksum. The position stays in front of it: `seek` to an offset after it to
    continue.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        problem: str | None = None,
        next_offset: int | None = None,
    ) -> None:
        """`problem`: what is wrong with a batch that arrived; None if the broker refused it."""
        text = (
            f"{partition} is damaged at offset {offset} on the broker's disk; "
            f"`moldau topics describe {partition.topic}` shows the damaged offsets, "
            "seek to an offset after them to continue"
        )
        if problem is not None:
            after = "an offset after it" if next_offset is None else str(next_offset)
            text = (
                f"the batch at offset {offset} of {partition} arrived damaged ({problem}); "
                f"seek to {after} to leave it out"
            )
        super().__init__(text)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class DeserializationError(ClientError):
    """A key or a value that its deserializer does not take. The position stays in front of it:
    `seek` behind it to go on.
    """

    def __init__(self, partition: TopicPartition, offset: int, cause: Exception) -> None:
        super().__init__(
            f"{partition} has a record at offset {offset} that cannot be read: {cause}; "
            f"seek to {offset + 1} to leave it out"
        )
        self.partition = partition
        self.offset = offset
