"""Positions and offsets of the consumer that waits."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from moldau.client.consumer.arguments import CommitOffsets, Place
from moldau.client.consumer.offsets import GroupMetadata
from moldau.client.consumer.offsets_api import OffsetAndTimestamp, OffsetMethods
from moldau.client.consumer.user_calls import UserCalls
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.types import TopicPartition

Result = TypeVar("Result")


class BlockingOffsetMethods:
    """As OffsetMethods; every call waits until it is done."""

    def __init__(self, desk: OffsetMethods, calls: UserCalls) -> None:
        self._desk = desk
        self._calls = calls

    def _do(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        async def done() -> Result:
            return function(*arguments, **named)

        return self._calls.run(done())

    # Seeking.

    def seek(self, partition: Place, offset: int | OffsetAndMetadata) -> None:
        """The next record to be read there."""
        self._do(self._desk.seek, partition, offset)

    def seek_to_beginning(self, *partitions: Place) -> None:
        """Of these, or of all that are assigned."""
        self._do(self._desk.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: Place) -> None:
        """Of these, or of all that are assigned: only later records are given."""
        self._do(self._desk.seek_to_end, *partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: Place) -> None:
        """To the first record that is not older; to the end if there is none."""
        self._calls.run(self._desk.seek_to_time(timestamp_ms, *partitions))

    def pause(self, *partitions: Place) -> None:
        """Nothing is given of these, or of all, until they are resumed."""
        self._do(self._desk.pause, *partitions)

    def resume(self, *partitions: Place) -> None:
        """Gives records of these, or of all, again."""
        self._do(self._desk.resume, *partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused now."""
        return self._do(self._desk.paused)

    def position(self, partition: Place) -> int:
        """The offset of the next record to be given."""
        return self._calls.run(self._desk.position(partition))

    def lag(self, partition: Place) -> int | None:
        """Records between the position and the end, as far as the last fetch knew; None before."""
        return self._do(self._desk.lag, partition)

    # Committing.

    def commit(self, offsets: CommitOffsets = None) -> None:
        """Waits until the group has it. Raises CommitFailedError if it does not take it."""
        self._calls.run(self._desk.commit(offsets))

    def commit_async(
        self, offsets: CommitOffsets = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Does not wait; `callback(offsets, error)` is called by a later poll."""
        self._do(self._desk.commit_async, offsets, callback)

    def committed(
        self, partitions: Iterable[Place]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        return self._calls.run(self._desk.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a transaction that commits its offsets."""
        return self._do(self._desk.group_metadata)

    # Asking.

    def beginning_offsets(self, partitions: Iterable[Place]) -> dict[TopicPartition, int]:
        """The offset of the first record that is there."""
        return self._calls.run(self._desk.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[Place]) -> dict[TopicPartition, int]:
        """Behind the last record that may be read: with read_committed, the last stable offset."""
        return self._calls.run(self._desk.end_offsets(partitions))

    def offsets_for_times(
        self, times: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record that is not older than a time in ms; None if there is none."""
        return self._calls.run(self._desk.offsets_for_times(times))
