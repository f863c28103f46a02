"""Positions and offsets of the blocking consumer; the docstrings are the asyncio consumer's."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from moldau.client.consumer.arguments import AnyPartition, CommitOffsets
from moldau.client.consumer.offsets import GroupMetadata
from moldau.client.consumer.offsets_api import OffsetAndTimestamp, OffsetMethods
from moldau.client.consumer.user_calls import UserCalls
from moldau.client.twin_docs import documented_by
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.types import TopicPartition

Result = TypeVar("Result")


class BlockingOffsetMethods:
    """The methods of OffsetMethods; every call waits until it is done."""

    def __init__(self, twin: OffsetMethods, calls: UserCalls) -> None:
        self._twin = twin
        self._calls = calls

    def _do(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        async def done() -> Result:
            return function(*arguments, **named)

        return self._calls.run(done())

    # Seeking.

    @documented_by(OffsetMethods.seek)
    def seek(self, partition: AnyPartition, offset: int | OffsetAndMetadata) -> None:
        self._do(self._twin.seek, partition, offset)

    @documented_by(OffsetMethods.seek_to_beginning)
    def seek_to_beginning(self, *partitions: AnyPartition) -> None:
        self._do(self._twin.seek_to_beginning, *partitions)

    @documented_by(OffsetMethods.seek_to_end)
    def seek_to_end(self, *partitions: AnyPartition) -> None:
        self._do(self._twin.seek_to_end, *partitions)

    @documented_by(OffsetMethods.seek_to_time)
    def seek_to_time(self, timestamp_ms: int, *partitions: AnyPartition) -> None:
        self._calls.run(self._twin.seek_to_time(timestamp_ms, *partitions))

    @documented_by(OffsetMethods.pause)
    def pause(self, *partitions: AnyPartition) -> None:
        self._do(self._twin.pause, *partitions)

    @documented_by(OffsetMethods.resume)
    def resume(self, *partitions: AnyPartition) -> None:
        self._do(self._twin.resume, *partitions)

    @documented_by(OffsetMethods.paused)
    def paused(self) -> set[TopicPartition]:
        return self._do(self._twin.paused)

    @documented_by(OffsetMethods.position)
    def position(self, partition: AnyPartition) -> int:
        return self._calls.run(self._twin.position(partition))

    @documented_by(OffsetMethods.lag)
    def lag(self, partition: AnyPartition) -> int | None:
        return self._do(self._twin.lag, partition)

    # Committing.

    @documented_by(OffsetMethods.commit)
    def commit(self, offsets: CommitOffsets = None) -> None:
        self._calls.run(self._twin.commit(offsets))

    @documented_by(OffsetMethods.commit_async)
    def commit_async(
        self, offsets: CommitOffsets = None, callback: Callable[..., Any] | None = None
    ) -> None:
        self._do(self._twin.commit_async, offsets, callback)

    @documented_by(OffsetMethods.committed)
    def committed(
        self, partitions: Iterable[AnyPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._calls.run(self._twin.committed(partitions))

    @documented_by(OffsetMethods.group_metadata)
    def group_metadata(self) -> GroupMetadata:
        return self._do(self._twin.group_metadata)

    # Looking up.

    @documented_by(OffsetMethods.beginning_offsets)
    def beginning_offsets(self, partitions: Iterable[AnyPartition]) -> dict[TopicPartition, int]:
        return self._calls.run(self._twin.beginning_offsets(partitions))

    @documented_by(OffsetMethods.end_offsets)
    def end_offsets(self, partitions: Iterable[AnyPartition]) -> dict[TopicPartition, int]:
        return self._calls.run(self._twin.end_offsets(partitions))

    @documented_by(OffsetMethods.offsets_for_times)
    def offsets_for_times(
        self, times: Mapping[AnyPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._calls.run(self._twin.offsets_for_times(times))
